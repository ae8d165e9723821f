package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"agentd/internal/index"
)

// Item is a document, or that there is none any more, at its place in the stream.
type Item struct {
	// Token is that of the run's key.
	Token string
	// Document is nil of a run whose document was withdrawn.
	Document *index.Document
	Sequence uint64
	// At is when it was stored, in Unix milliseconds.
	At int64
}

// superseded reports whether nothing is left of an item once the next one of the same run is taken up. That a document was withdrawn stays:
// the run may begin anew, with a lower revision.
func (i *Item) superseded(next *Item) bool {
	return next.Document == nil || i.Document != nil && i.Document.Rev < next.Document.Rev
}

// place is how far the index has come: in the stream that was made at that time, in Unix nanoseconds.
type place struct {
	stream   int64
	sequence uint64
	at       int64
}

func (x *Index) place(ctx context.Context) (p place, err error) {
	_, err = x.asking(ctx, func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT stream, sequence, at FROM place").Scan(&p.stream, &p.sequence, &p.at)
	})
	return p, err
}

// take takes up items of a stream in one transaction, and tells of them.
func (x *Index) take(ctx context.Context, stream int64, items []Item) error {
	var taken []index.Document
	_, err := x.asking(ctx, func(db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing, once it is committed
		taken, err = write(ctx, tx, stream, items)
		if err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		return fmt.Errorf("take up %d documents: %w", len(items), err)
	}
	x.Tell(taken)
	return nil
}

func write(ctx context.Context, tx *sql.Tx, stream int64, items []Item) (taken []index.Document, err error) {
	w := writer{ctx: ctx, tx: tx, statements: map[string]*sql.Stmt{}}
	superseded, next := make([]bool, len(items)), map[string]*Item{}
	for i := len(items) - 1; i >= 0; i-- {
		later := next[items[i].Token]
		superseded[i] = later != nil && items[i].superseded(later)
		next[items[i].Token] = &items[i]
	}
	for i := range items {
		if d := items[i].Document; !superseded[i] && w.item(&items[i]) && d != nil {
			taken = append(taken, *d)
		}
	}
	last := items[len(items)-1]
	w.exec("UPDATE place SET stream = ?, sequence = ?, at = ?", stream, int64(last.Sequence), last.At)
	return taken, w.err
}

// writer keeps the statements of a transaction, and the first error.
type writer struct {
	ctx        context.Context
	tx         *sql.Tx
	statements map[string]*sql.Stmt
	err        error
}

func (w *writer) statement(text string) *sql.Stmt {
	s, ok := w.statements[text]
	if !ok && w.err == nil {
		s, w.err = w.tx.PrepareContext(w.ctx, text)
		w.statements[text] = s
	}
	return s
}

func (w *writer) exec(text string, arguments ...any) (id int64) {
	s := w.statement(text)
	if w.err != nil {
		return 0
	}
	result, err := s.ExecContext(w.ctx, arguments...)
	if w.err = err; err == nil {
		id, w.err = result.LastInsertId()
	}
	return id
}

// item takes up one item, and reports whether it is news.
func (w *writer) item(i *Item) bool {
	find := w.statement("SELECT id, rev FROM runs WHERE token = ?")
	if w.err != nil {
		return false
	}
	var id, rev int64
	err := find.QueryRowContext(w.ctx, i.Token).Scan(&id, &rev)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		w.err = err
		return false
	}
	d := i.Document
	if d != nil && rev >= int64(d.Rev) {
		return false
	}
	if err == nil {
		w.exec("DELETE FROM marks WHERE id = ?", id)
		w.exec("DELETE FROM words WHERE rowid = ?", id)
		w.exec("DELETE FROM runs WHERE id = ?", id)
	}
	if d == nil {
		return err == nil
	}
	data, failed := d.Encode()
	if failed != nil {
		w.err = failed
		return false
	}
	id = w.exec(`INSERT INTO runs (token, rev, run, agent, spec, status, reason, code, who, parent, started, changed, due, deadline,
		interactions, tokens, ended, span, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		i.Token, int64(d.Rev), d.Run, d.Agent, d.Spec, string(d.Status), string(d.Reason), d.Code, d.Who, d.Parent, d.Started, d.Changed, d.Due,
		d.Deadline, d.Turns, d.Tokens.Total(), d.Done(), d.Span(), data)
	w.exec("INSERT INTO words (rowid, run, text) VALUES (?, ?, ?)", id, d.Run, d.Text)
	for key, values := range d.Marks() {
		slices.Sort(values)
		for _, value := range slices.Compact(values) {
			w.exec("INSERT INTO marks VALUES (?, ?, ?, ?)", key, value, d.Changed, id)
		}
	}
	return true
}

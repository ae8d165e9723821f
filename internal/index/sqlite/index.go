// Package sqlite is the index of runs in a file: it follows the stream of documents, and can be deleted at any time.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"agentd/internal/index"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Index is an index.Index in a file. Safe for concurrent use by one process, which locks the file while it is open.
type Index struct {
	path string
	lock *flock.Flock
	now  func() time.Time
	// Watchers are told of what is taken up.
	index.Watchers

	// mu guards db, which is another one when the index begins anew, and what follows.
	mu    sync.RWMutex
	db    *sql.DB
	fresh index.Freshness
	// follows says that documents are taken up as they come.
	follows bool
}

var _ index.Index = (*Index)(nil)

// Open opens the index in a file, or makes it; now is the broker's time. Close releases it.
func Open(ctx context.Context, path string, now func() time.Time) (*Index, error) {
	lock := flock.New(path + ".lock")
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the index of runs at %s: %w", path, err)
	}
	if !locked {
		return nil, sdk.Errorf(sdk.CodeConfig, "another program uses the index of runs at %s; give each its own file", path)
	}
	db, err := open(ctx, path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Index{path: path, lock: lock, now: now, db: db}, nil
}

// Close releases the file.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return errors.Join(x.db.Close(), x.lock.Close())
}

// asking runs do with the file while it stays the same.
func (x *Index) asking(ctx context.Context, do func(*sql.DB) error) (index.Freshness, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	err := do(x.db)
	if err != nil && ctx.Err() == nil {
		err = sdk.Errorf(sdk.CodeUnavailable, "the index of runs cannot be read").WithCause(err)
	}
	return x.fresh, err
}

// Query implements index.Index.
func (x *Index) Query(ctx context.Context, q index.Query) (index.Page, error) {
	at, err := q.Position(x.now().UnixMilli())
	if err != nil {
		return index.Page{}, err
	}
	page := index.Page{Documents: []index.Document{}}
	limit := q.Most()
	page.Freshness, err = x.asking(ctx, func(db *sql.DB) error {
		c := x.page(q, at, limit+1)
		rows, err := db.QueryContext(ctx, c.text.String(), c.arguments...)
		if err != nil {
			return err
		}
		page.Documents, err = documents(rows)
		return err
	})
	if err != nil {
		return index.Page{}, err
	}
	if len(page.Documents) > limit {
		page.Documents = page.Documents[:limit]
		page.Next = q.Following(&page.Documents[limit-1])
	}
	return page, nil
}

// page is the statement of a query that reads limit documents after a position; nil is the beginning.
func (x *Index) page(q index.Query, at *index.Position, limit int) *clause {
	c, groups := &clause{}, q.Filter.Groups()
	rest := listing{Query: q, at: at, limit: limit, now: x.now().UnixMilli()}
	if q.Order() == index.SortDuration {
		c.spans(rest, groups)
		return c
	}
	mark := -1
	if q.Order() == index.SortChanged {
		mark = slices.IndexFunc(groups, areMarks)
	}
	if mark < 0 {
		c.add("SELECT r.document FROM runs r WHERE 1")
		c.list("r."+string(q.Order()), rest, groups)
		return c
	}
	others := slices.Delete(slices.Clone(groups), mark, mark+1)
	c.add("SELECT document FROM (")
	for i, t := range groups[mark] {
		if i > 0 {
			c.add(" UNION ")
		}
		// Its marks are in the right order already, and no more of them are read than are asked for.
		c.add("SELECT * FROM (SELECT r.document, m.changed, r.run FROM marks m CROSS JOIN runs r ON r.id = m.id WHERE m.key = ? AND m.value = ?", t.Key, t.Value)
		c.list("m.changed", rest, others)
		c.add(")")
	}
	c.add(") ORDER BY changed"+rest.direction()+", run LIMIT ?", limit)
	return c
}

// documents reads and closes rows.
func documents(rows *sql.Rows) (all []index.Document, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	all = []index.Document{}
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return nil, err
		}
		d, err := index.Decode(data)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, rows.Err()
}

// Get implements index.Index.
func (x *Index) Get(ctx context.Context, run string) (d index.Document, known bool, err error) {
	_, err = x.asking(ctx, func(db *sql.DB) error {
		var data []byte
		err := db.QueryRowContext(ctx, "SELECT document FROM runs WHERE token = ?", wire.NewRunKey(run).Token).Scan(&data)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err == nil {
			d, err = index.Decode(data)
			known = err == nil
		}
		return err
	})
	return d, known, err
}

// Counts implements index.Index. Each value is counted by itself, so that counting can end at index.CountLimit.
func (x *Index) Counts(ctx context.Context, f index.Filter, by index.CountBy) (index.Counts, error) {
	if err := by.Check(); err != nil {
		return index.Counts{}, err
	}
	n := map[string]int{}
	fresh, err := x.asking(ctx, func(db *sql.DB) error {
		values, err := valuesOf(ctx, db, by)
		if err != nil {
			return err
		}
		for _, v := range values {
			c, count := x.counting(f, by, v), 0
			if err := db.QueryRowContext(ctx, c.text.String(), c.arguments...).Scan(&count); err != nil {
				return err
			}
			if count > 0 {
				n[v] = count
			}
		}
		return nil
	})
	if err != nil {
		return index.Counts{}, err
	}
	return index.Counts{Groups: index.Groups(n), Freshness: fresh}, nil
}

// counting is the statement that counts the runs with a value.
func (x *Index) counting(f index.Filter, by index.CountBy, value string) *clause {
	c, groups := &clause{}, f.Groups()
	if term := (index.Term{Key: string(by), With: index.Is, Value: value}); marked(&term) {
		c.add("SELECT count(*) FROM (SELECT 1 FROM marks m CROSS JOIN runs r ON r.id = m.id WHERE m.key = ? AND m.value = ?", term.Key, value)
	} else {
		c.add("SELECT count(*) FROM (SELECT 1 FROM runs r WHERE 1")
		groups = append(groups, []index.Term{term})
	}
	c.where(groups, x.now().UnixMilli())
	c.add(" LIMIT ?)", index.CountLimit+1)
	return c
}

// valuesOf are the values that runs have of something, by leaps through the index of it.
func valuesOf(ctx context.Context, db *sql.DB, by index.CountBy) (values []string, err error) {
	from := "runs WHERE " + string(by)
	column := string(by)
	if marked(&index.Term{Key: column}) {
		from, column = "marks WHERE key = '"+column+"' AND value", "value"
	}
	for last := ""; ; {
		var next sql.NullString
		if err := db.QueryRowContext(ctx, "SELECT min("+column+") FROM "+from+" > ?", last).Scan(&next); err != nil {
			return nil, err
		}
		if !next.Valid {
			return values, nil
		}
		last = next.String
		values = append(values, last)
	}
}

// begin makes the index anew.
func (x *Index) begin(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := errors.Join(x.db.Close(), remove(x.path)); err != nil {
		return fmt.Errorf("begin the index of runs anew: %w", err)
	}
	db, err := open(ctx, x.path)
	if err != nil {
		return err
	}
	x.db, x.fresh = db, index.Freshness{}
	return nil
}

package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"agentd/internal/broker"
	"agentd/internal/index"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// lookForIndex is how often a worker looks whether there is an index: one request, about one stream.
	lookForIndex = 3 * time.Second
	// restsFor is how long a run is left alone after its document was published, unless it ends or waits for something else: most
	// runs that change more often are done by then.
	restsFor = 5 * time.Second
	// mostResting bounds how many runs are remembered for that.
	mostResting = 100_000
	// mostAsked is of how many runs it is asked at once what was said last.
	mostAsked = 8
)

// sealer is a store that seals documents as it seals what it keeps.
type sealer interface {
	Seals() bool
	SealDocument(run wire.RunKey, rev uint64, data []byte) []byte
}

// indexer implements runner.Indexer: it publishes the documents of runs. A run that takes less than restsFor has at most three: at its
// beginning, when it first waits for a kind of thing, and at its end.
type indexer struct {
	conn   *broker.Conn
	seal   sealer
	logger *slog.Logger
	wanted atomic.Bool
	// unpermitted is done when it was told that this user may not read what the index has.
	unpermitted sync.Once

	mu   sync.Mutex
	runs map[string]*resting
}

// resting is a run whose document was published lately.
type resting struct {
	since time.Time
	// kinds are those of the things that it was said to wait for.
	kinds []string
	// next is what there is to say after that; nil is nothing.
	next *index.Document
}

func newIndexer(conn *broker.Conn, store runner.Store, logger *slog.Logger) *indexer {
	seal, _ := store.(sealer)
	return &indexer{conn: conn, seal: seal, logger: logger, runs: map[string]*resting{}}
}

// Wanted implements runner.Indexer.
func (x *indexer) Wanted() bool { return x.wanted.Load() }

// Note implements runner.Indexer.
func (x *indexer) Note(i runner.Indexed) {
	d := index.Of(i)
	x.mu.Lock()
	defer x.mu.Unlock()
	r, known := x.runs[d.Run]
	if !known {
		r = &resting{}
		if len(x.runs) < mostResting && !d.Done() {
			x.runs[d.Run] = r
		}
	}
	fresh := r.waitsAnew(&d)
	if !known || d.Done() || fresh {
		x.publish(r, &d)
	} else {
		r.next = &d
	}
	if d.Done() {
		delete(x.runs, d.Run)
	}
}

// waitsAnew reports whether the run waits for a kind of thing that it was not said to wait for lately, and notes it.
func (r *resting) waitsAnew(d *index.Document) bool {
	anew := false
	for _, w := range d.Waits {
		if !slices.Contains(r.kinds, w.Kind) {
			r.kinds = append(r.kinds, w.Kind)
			anew = true
		}
	}
	return anew
}

// publish says how the run is.
func (x *indexer) publish(r *resting, d *index.Document) {
	r.since, r.next = time.Now(), nil
	if err := x.document(d); err != nil {
		x.logger.Debug("the index of runs is not told of a run", "run", d.Run, "error", err)
	}
}

// document publishes a document.
func (x *indexer) document(d *index.Document) error {
	i, err := x.indexed(d)
	if err != nil {
		return err
	}
	return x.conn.PublishIndexed(i)
}

// indexed is a document as it is published: sealed where runs are sealed, and without data of a run whose history is removed.
func (x *indexer) indexed(d *index.Document) (broker.IndexedRun, error) {
	i := broker.IndexedRun{Run: wire.NewRunKey(d.Run), Revision: d.Rev}
	if d.Purged != 0 {
		return i, nil
	}
	seals := x.seal != nil && x.seal.Seals()
	if seals {
		d.Text = ""
	}
	data, err := d.Encode()
	if err != nil {
		return i, err
	}
	if seals {
		data = x.seal.SealDocument(i.Run, d.Rev, data)
	}
	i.Data = data
	return i, nil
}

// flush says what there is to say of runs that rested for as long, where nobody has said more meanwhile: another worker may have ended such a
// run, and somebody may have removed its history.
func (x *indexer) flush(ctx context.Context, rested time.Duration) {
	var asked errgroup.Group
	asked.SetLimit(mostAsked)
	for _, d := range x.rested(rested) {
		asked.Go(func() error {
			if err := x.catchUp(ctx, d); err != nil {
				x.failed(ctx, d, err)
			}
			return nil
		})
	}
	_ = asked.Wait() // each has told its own
}

// failed keeps a document back once more that the index was not told, as while the broker is away or its stream has no leader. Where this user
// may not look what the index has, it never is.
func (x *indexer) failed(ctx context.Context, d *index.Document, err error) {
	if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		x.unpermitted.Do(func() {
			x.logger.WarnContext(ctx, "the index of runs is told late of runs that change often: this NATS user may not read what it has; "+
				"make the server's configuration anew: agentd nats-config", "error", err)
		})
		return
	}
	x.logger.DebugContext(ctx, "the index of runs is not told of a run; trying again", "run", d.Run, "in", restsFor, "error", err)
	x.mu.Lock()
	defer x.mu.Unlock()
	if r, known := x.runs[d.Run]; known && r.next == nil { // else more was said meanwhile, or is to be
		r.next = d
	}
}

// rested are the documents of runs that rested for as long, and forgets runs of which there is nothing more to say.
func (x *indexer) rested(rested time.Duration) []*index.Document {
	x.mu.Lock()
	defer x.mu.Unlock()
	var documents []*index.Document
	for run, r := range x.runs {
		switch {
		case time.Since(r.since) < rested:
		case r.next == nil:
			delete(x.runs, run)
		default:
			documents = append(documents, r.next)
			r.kinds = nil
			r.waitsAnew(r.next)
			r.since, r.next = time.Now(), nil
		}
	}
	return documents
}

// catchUp publishes a document unless there is a later one.
func (x *indexer) catchUp(ctx context.Context, d *index.Document) error {
	was, err := x.conn.Indexed(ctx, wire.NewRunKey(d.Run))
	if err != nil || was.Revision >= d.Rev {
		return err
	}
	i, err := x.indexed(d)
	if err != nil {
		return err
	}
	return x.conn.ReplaceIndexed(was, i)
}

// run keeps the documents coming until ctx ends. The returned function waits until what was left is said.
func (x *indexer) run(ctx context.Context) (wait func()) {
	x.look(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		looks, flushes := time.NewTicker(lookForIndex), time.NewTicker(restsFor/5)
		defer looks.Stop()
		defer flushes.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-looks.C:
				x.look(ctx)
			case <-flushes.C:
				x.flush(ctx, restsFor)
			}
		}
	}()
	return func() {
		<-done
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hintTimeout)
		defer cancel()
		x.flush(ctx, 0)
	}
}

// look finds out whether there is an index. Where that cannot be learnt, it is as it was.
func (x *indexer) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	there, err := x.conn.Indexes(ctx)
	if err != nil {
		x.logger.DebugContext(ctx, "whether there is an index of runs is not known", "error", err)
		return
	}
	x.wanted.Store(there)
}

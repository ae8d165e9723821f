package desk

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"agentd/internal/broker"
	"agentd/internal/contracts"
	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// Options are what a desk is made of.
type Options struct {
	Conn *broker.Conn
	// Domains are those whose calls are shown; none is sdk.HumanDomain alone, "*" is all.
	Domains []string
	// Contracts are those of tasks; agentd's own need not be among them.
	Contracts []sdk.Contract
	// Patience is how long Decide and Answer wait for what becomes of an answer, and History for all that there is; 0 is 10 s.
	Patience time.Duration
	// SigningKey signs decisions; nil leaves them unsigned.
	SigningKey ed25519.PrivateKey
	Logger     *slog.Logger
}

// Desk is an inbox that keeps itself up to date until it is closed.
type Desk struct {
	o     Options
	inbox *inbox
	// client answers, and asks workers.
	client *client.Client
	// now is the clock.
	now    func() time.Time
	stop   context.CancelFunc
	done   *sync.WaitGroup
	failed chan error
}

const (
	defaultPatience = 10 * time.Second
	// expiryCheck is how often expired items are looked for.
	expiryCheck = time.Second
	// answersKept is how long the broker certainly keeps answers; those to older questions may be gone.
	answersKept = 6 * 24 * time.Hour
	// asking bounds a query to a worker.
	asking = 2 * time.Second
	// askedAtOnce bounds the queries that wait for workers.
	askedAtOnce = 16
)

// Open reads what is open now and keeps reading until Close. ctx bounds the opening.
func Open(ctx context.Context, o Options) (*Desk, error) {
	if len(o.Domains) == 0 {
		o.Domains = []string{sdk.HumanDomain}
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	d := &Desk{o: o, now: time.Now, stop: stop, done: &sync.WaitGroup{}, failed: make(chan error, 1)}
	d.inbox = newInbox(o.Conn.Subjects(), d.now)
	d.client = client.New(o.Conn, client.Options{Source: Source, SigningKey: o.SigningKey, Patience: o.Patience})
	r, err := d.read(ctx, working, d.inbox)
	if err != nil {
		d.Close()
		return nil, err
	}
	d.done.Go(func() { d.keepReading(working, r) })
	d.settleOld(ctx)
	d.done.Go(func() { d.expire(working) })
	return d, nil
}

// Over is the desk for somebody with a connection of their own, over which everything is read of a request, decided and answered: the
// broker enforces who they are. The list of requests stays the desk's, which must not be closed before.
func (d *Desk) Over(conn *broker.Conn) *Desk {
	other := *d
	other.o.Conn = conn
	other.client = client.New(conn, client.Options{Source: Source, SigningKey: d.o.SigningKey, Patience: d.o.Patience})
	return &other
}

// Close stops reading.
func (d *Desk) Close() {
	d.stop()
	d.done.Wait()
}

// Failed gets an error when the calls can no longer be read.
func (d *Desk) Failed() <-chan error { return d.failed }

// expire removes expired items, and reminds of others, until ctx ends.
func (d *Desk) expire(ctx context.Context) {
	tick := time.NewTicker(expiryCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.inbox.expire()
		case <-ctx.Done():
			return
		}
	}
}

// settleOld asks the workers about questions so old that the broker may have forgotten their answers. Those whose agent
// nobody serves now stay.
func (d *Desk) settleOld(ctx context.Context) {
	for _, i := range d.inbox.list() {
		if i.Kind == requests.KindPermission || d.now().Sub(time.UnixMilli(i.Asked)) < answersKept {
			continue
		}
		within, stop := context.WithTimeout(ctx, asking)
		status, err := d.client.Status(within, runOf(i))
		stop()
		if err != nil {
			continue
		}
		ref, _ := wire.ParseCallRef(i.ID) // an id of another form does not belong to a waiting call either
		open := false
		for _, c := range status.Waiting {
			open = open || c.Call == ref.ID
		}
		if !open {
			d.inbox.closed(i.Subject)
		}
	}
}

// Marked says of each item whether the journal of its run is lost, as far as workers tell soon: a call that is stored has a journal,
// unless that was lost.
func (d *Desk) Marked(ctx context.Context, items []requests.Item) []requests.Item {
	ctx, stop := context.WithTimeout(ctx, asking)
	defer stop()
	runs := map[client.Run][]int{}
	for n := range items {
		runs[runOf(items[n])] = append(runs[runOf(items[n])], n)
	}
	var asked errgroup.Group
	asked.SetLimit(askedAtOnce)
	for run, of := range runs {
		asked.Go(func() error {
			_, err := d.client.Status(ctx, run)
			for _, n := range of {
				items[n].Lost = errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun})
			}
			return nil
		})
	}
	_ = asked.Wait() // none of them fails
	return items
}

func (b *inbox) closed(subject string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(subject, requests.ReasonAnswered)
}

// runOf names the run of an item.
func runOf(i requests.Item) client.Run { return client.Run{Agent: i.Agent, Name: i.Run} }

// List returns what is open, the oldest first.
func (d *Desk) List() []requests.Item {
	d.inbox.expire()
	return d.inbox.list()
}

// Omitted counts open items that are not shown, because they are too many.
func (d *Desk) Omitted() int {
	d.inbox.mu.Lock()
	defer d.inbox.mu.Unlock()
	return d.inbox.omitted
}

// Find returns the open item whose id, or the part of it that List calls Short, begins with prefix. The error is
// CodeUnknownRun.
func (d *Desk) Find(prefix string) (requests.Item, error) {
	d.inbox.expire()
	return d.inbox.find(prefix)
}

// Closed is the removal of the item that Find would have found, as far as the desk remembers it, with the answers that it had.
func (d *Desk) Closed(prefix string) (requests.Change, bool) { return d.inbox.removed(prefix) }

// Detail reads everything about the open item that Find finds.
func (d *Desk) Detail(ctx context.Context, prefix string) (requests.Detail, error) {
	i, err := d.Find(prefix)
	if err != nil {
		return requests.Detail{}, err
	}
	return d.detail(ctx, i)
}

// toAnswer is Detail for somebody who answers.
func (d *Desk) toAnswer(ctx context.Context, id string) (requests.Detail, error) {
	if i, ok := d.inbox.exact(id); ok {
		return d.detail(ctx, i)
	}
	return d.Detail(ctx, id)
}

func (d *Desk) detail(ctx context.Context, i requests.Item) (requests.Detail, error) {
	m, err := d.o.Conn.Stored(ctx, i.Subject, i.Sequence)
	if err != nil {
		return requests.Detail{}, err
	}
	return newDetail(i, m)
}

// Read reports whether the desk has read a message of the stream of calls of a domain, which is one of its own.
// domain is the domain's subject token.
func (d *Desk) Read(domain string, m broker.Delivery) bool { return d.inbox.hasRead(domain, m) }

// History returns what the item's run recorded of decisions on it, refused ones too. It needs a worker that serves the
// agent: without one, the error is CodeUnavailable.
func (d *Desk) History(ctx context.Context, i requests.Item) ([]wire.DecisionRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Patience) // a long one takes several queries
	defer cancel()
	ref, _ := wire.ParseCallRef(i.ID) // nothing is recorded of another form of id
	var history []wire.DecisionRecord
	for l, err := range d.client.History(ctx, runOf(i), wire.Mark{}) {
		if err != nil {
			return history, err
		}
		if decided, ok := client.DecidedIn(l); ok && decided.Decision.Asked() == ref.ID {
			history = append(history, decided.Decision)
		}
	}
	return history, nil
}

// Changes returns the changes after a number, 0 being the desk's beginning, as soon as there are any. ok is false when some
// have been forgotten: whoever asks must begin again with List and the number that Number gave before.
func (d *Desk) Changes(ctx context.Context, after uint64) (changes []requests.Change, ok bool, err error) {
	for {
		changes, next, err := d.inbox.since(after)
		if errors.Is(err, errGap) {
			return nil, false, nil
		}
		if len(changes) > 0 {
			return changes, true, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, true, ctx.Err()
		}
	}
}

// Number is the number of the last change.
func (d *Desk) Number() uint64 {
	d.inbox.mu.Lock()
	defer d.inbox.mu.Unlock()
	return d.inbox.number
}

// contractOf is the contract of a call's type, or nil.
func (d *Desk) contractOf(contractType string) *sdk.Contract {
	for _, list := range [][]sdk.Contract{contracts.Builtin(), d.o.Contracts} {
		for i := range list {
			if list[i].Type == contractType {
				return &list[i]
			}
		}
	}
	return nil
}

package main

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/desk"
	"agentd/internal/desk/webhook"
	asks "agentd/internal/requests"
	"agentd/sdk"
)

// nobodyAnswers is a webhook at a private address that no network here has: packets to it are lost, or turned away by what lies between.
const nobodyAnswers = "http://10.255.255.1:9/hook"

// The paths of the driver's own receivers.
const (
	hookPath     = "/hook"
	movedPath    = "/moved"
	metadataPath = "/latest/meta-data/"
)

const (
	// tellWithin is how long a request must be shown by the desk before the webhook must know of it: it takes a tenth of a second where nothing
	// is away, and nobody waits for longer than 3 s for a decision.
	tellWithin = 2 * time.Second
	// slowAnswer is when the server is taken to be away, whatever the reason: what tells a webhook waits for it a few times.
	slowAnswer = 300 * time.Millisecond
	// resumesAfter is how long after the server was away deliveries may still be late: a read that was lost with it is given up after 5 s, and
	// takes one of the few slots that long.
	resumesAfter = 6 * time.Second
)

// hadToBeTold is what the report calls the requests that are judged, and notTold those of them that the webhook did not hear of.
const (
	hadToBeTold = "requests that the webhook had to be told of"
	notTold     = "of these, not told in time"
)

// asksIn are the domains that people are asked in.
var asksIn = []string{sdk.HumanDomain, bossDomain}

// hookKey is what webhooks are signed with.
var hookKey = []byte("of all webhooks")

// webhooks are told what people are asked: one is healthy, one is at an address where nobody answers, one takes connections and says nothing, and one
// sends whoever calls it to where a cloud tells secrets of its machines. What tells them is the code that is tested, in the driver's process.
type webhooks struct {
	record *record
	url    string
	server http.Server
	served chan error
	// silent is where the one that says nothing listens; nobody accepts.
	silent net.Listener
	desk   *desk.Desk
	log    *slog.Logger

	mu sync.Mutex
	// told are the requests that the healthy one knows of, by the id of the call's event, and shown those that the desk showed.
	told  map[string]bool
	shown map[string]shown
	// moved counts what the one that redirects was told.
	moved int
	// away are the times in which the server did not answer the driver soon.
	away []hurt
}

// shown is from when until when the desk showed a request; until is zero as long as it does.
type shown struct{ from, until time.Time }

// serveWebhooks starts the receivers.
func (w *world) serveWebhooks(ctx context.Context) error {
	var lc net.ListenConfig
	silent, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the silent webhook: %w", err)
	}
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(fmt.Errorf("listen for webhooks: %w", err), silent.Close())
	}
	h := &webhooks{
		record: w.record, url: "http://" + l.Addr().String(), served: make(chan error, 1), silent: silent,
		told: map[string]bool{}, shown: map[string]shown{},
	}
	paths := http.NewServeMux()
	paths.HandleFunc(hookPath, h.hear)
	paths.HandleFunc(movedPath, h.redirect)
	paths.HandleFunc(metadataPath, func(_ http.ResponseWriter, r *http.Request) {
		h.record.violate("a webhook was followed to where secrets are told: %s %s", r.Method, r.URL)
	})
	h.server.Handler = paths
	go func() { h.served <- h.server.Serve(l) }()
	w.webhooks = h
	w.closers = append(w.closers, h.close)
	return nil
}

func (h *webhooks) close() error {
	err := h.server.Close()
	if served := <-h.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if closed := h.silent.Close(); !errors.Is(closed, net.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

func (h *webhooks) healthy() webhook.Target {
	return webhook.Target{URL: h.url + hookPath, Key: hookKey}
}

func (h *webhooks) all() []webhook.Target {
	return []webhook.Target{
		h.healthy(),
		{URL: nobodyAnswers, Key: hookKey},
		{URL: "http://" + h.silent.Addr().String() + hookPath, Key: hookKey},
		{URL: h.url + movedPath, Key: hookKey},
	}
}

// plan has all of them told what people are asked.
func (h *webhooks) plan() []provision.Webhook {
	var plans []provision.Webhook
	for _, one := range h.all() {
		plans = append(plans, provision.Webhook{Name: one.Name(), Domains: asksIn})
	}
	return plans
}

// hear is the healthy receiver.
func (h *webhooks) hear(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest) // whoever sends it sends it again
		return
	}
	id := r.Header.Get("Webhook-Id")
	signed := webhook.Sign(hookKey, id, r.Header.Get("Webhook-Timestamp"), body)
	if !hmac.Equal([]byte(signed), []byte(r.Header.Get("Webhook-Signature"))) {
		h.record.violate("the webhook was told of %q with a signature of something else", id)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told[id] = true
	h.log.Info("told", "request", id)
}

// redirect is the receiver that sends whoever calls it elsewhere.
func (h *webhooks) redirect(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	h.moved++
	h.mu.Unlock()
	w.Header().Set("Location", h.url+metadataPath)
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// openDesk opens the desk that webhooks are told from. It reads through workers, of which there is none yet: until it is open the driver is one.
func (w *world) openDesk(ctx context.Context) error {
	log, err := w.logFile("webhooks")
	if err != nil {
		return err
	}
	w.closers = append(w.closers, log.Close)
	w.webhooks.log = slog.New(slog.NewTextHandler(log, nil))
	stop, err := w.conn.Serve(w.conn.Reader())
	if err != nil {
		return fmt.Errorf("read to the desk of the webhooks: %w", err)
	}
	d, err := desk.Open(ctx, desk.Options{Conn: w.conn, Domains: asksIn, Logger: w.webhooks.log})
	if err != nil {
		return errors.Join(fmt.Errorf("open the desk of the webhooks: %w", err), stop())
	}
	w.webhooks.desk = d
	w.closers = append(w.closers, func() error {
		d.Close()
		return nil
	})
	return stop()
}

// tell tells all webhooks what people are asked, until all ends or end is called.
func (w *world) tell(all context.Context, background *sync.WaitGroup) (end func()) {
	h := w.webhooks
	h.record.fault("a webhook at an address where nobody answers")
	h.record.fault("a webhook that says nothing")
	h.record.fault("a webhook that redirects to where secrets are told")
	ctx, cancel := context.WithCancel(all)
	background.Go(func() { h.watch(ctx) })
	background.Go(func() { w.feel(ctx) })
	told := make(chan struct{})
	background.Go(func() {
		defer close(told)
		webhook.Run(ctx, webhook.Options{Conn: w.conn, Desk: h.desk, Targets: h.all(), Logger: h.log})
	})
	return func() {
		cancel()
		_ = h.silent.Close() // nobody waits for it any more; it is closed again with the others
		<-told
		select {
		case err := <-h.desk.Failed():
			h.record.violate("the desk of the webhooks cannot go on: %v", err)
		default:
		}
	}
}

// watch notes what the desk shows, until ctx ends.
func (h *webhooks) watch(ctx context.Context) {
	for after := uint64(0); ; {
		changes, ok, err := h.desk.Changes(ctx, after)
		if err != nil {
			return
		}
		if !ok {
			after = h.desk.Number()
		}
		for _, c := range changes {
			h.see(c, time.Now())
			after = c.Number
		}
	}
}

// see notes a change of what the desk shows. What has expired is told to nobody, even if the desk has not removed it yet.
func (h *webhooks) see(c asks.Change, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, known := h.shown[c.Item.ID]
	switch {
	case c.Kind == asks.ChangeAdded && !known:
		one.from = now
	case c.Kind == asks.ChangeRemoved && known && one.until.IsZero():
		one.until = now
		if due := time.UnixMilli(c.Item.Expires); c.Item.Expires > 0 && due.Before(now) {
			one.until = due
		}
	default:
		return
	}
	h.shown[c.Item.ID] = one
	h.log.Info("seen", "request", c.Item.ID, "from", one.from, "until", one.until)
}

// feel notes when the server does not answer soon, until ctx ends: it is killed and frozen, and a machine with other work stands still now and then.
func (w *world) feel(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		_, err := w.unheard(ctx)
		if now := time.Now(); err != nil || now.Sub(began) > slowAnswer {
			w.webhooks.mu.Lock()
			w.webhooks.away = append(w.webhooks.away, hurt{"nats", began, now})
			w.webhooks.log.Info("the server is slow", "took", now.Sub(began), "error", err)
			w.webhooks.mu.Unlock()
		}
		pause(ctx, 250*time.Millisecond)
	}
}

// unheard counts the requests of which the server has not had the healthy webhook told at all.
func (w *world) unheard(ctx context.Context) (int, error) {
	n := 0
	for _, ref := range w.layout.Consumers(streams.WebhookConsumer(w.webhooks.healthy().Name())) {
		state, err := w.consumer(ctx, ref)
		if err != nil {
			return 0, err
		}
		n += state.Pending
	}
	return n, nil
}

// awaitHeard waits until the healthy webhook has had its turn for all that people were asked. What came to nothing then comes again, perhaps
// much later, and is not waited for. Where the server forgets messages, nobody can tell.
func (w *world) awaitHeard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.rest)
	defer cancel()
	for !w.setsBack {
		left, err := w.unheard(ctx)
		if err == nil && left == 0 {
			return
		}
		if ctx.Err() != nil {
			w.record.violate("the webhook was not told of %d requests after all else was at rest (%v)", left, err)
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// due are the requests that the healthy webhook is to know of.
//
// What nobody waits for any more is told to nobody, so a request that was decided or passed on soon may never be told. How soon is too soon depends on
// the workers through which the desk reads what is asked: when one that it asks is killed or frozen it is behind for 10 s, and shows what was asked
// meanwhile for a moment or never. So what counts is for how long the desk has shown a request. From then on nobody but the server is needed, for the
// delivery and to read the message. If that was there all the time, and long enough before, the webhook is to be told, however many others
// are away. A desk that is behind may show what is answered, and a machine may stand still, so a few may be missed; a webhook that waits for others
// misses most.
func due(all map[string]shown, away []hurt) []string {
	var ids []string
	for id, s := range all {
		if s.until.Sub(s.from) < tellWithin { // or it is still shown
			continue
		}
		if !slices.ContainsFunc(away, func(a hurt) bool { return a.from.Before(s.from.Add(tellWithin)) && a.until.After(s.from) }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// unsteady are the times in which the server was away, each with the time until nothing is left of that.
func (w *world) unsteady() []hurt {
	var all []hurt
	add := func(list []hurt, after time.Duration) {
		for _, a := range list {
			all = append(all, hurt{a.name, a.from, a.until.Add(after)})
		}
	}
	w.hurts.mu.Lock()
	defer w.hurts.mu.Unlock()
	for _, a := range w.hurts.absences {
		if w.nats != nil && a.name == w.nats.name {
			add([]hurt{a}, resumesAfter)
		}
	}
	for _, h := range w.hurts.list {
		after := settledAfter
		if h.name == clockJumps { // what was given back while it was ahead comes again as much later
			after += mostJump
		}
		add([]hurt{h}, after)
	}
	add(w.webhooks.away, resumesAfter)
	return all
}

// hookTold finds requests that the healthy webhook should have been told of. Where the server forgets messages, nobody can tell.
func (e *evidence) hookTold() {
	h := e.webhooks
	h.mu.Lock()
	defer h.mu.Unlock()
	e.record.count("requests that the desk of the webhooks showed", len(h.shown))
	e.record.count("requests that the webhook was told of", len(h.told))
	e.record.count("times that the webhook which redirects was told", h.moved)
	if e.setsBack {
		return
	}
	must := due(h.shown, e.unsteady())
	e.record.count(hadToBeTold, len(must))
	untold := slices.DeleteFunc(slices.Clone(must), func(id string) bool { return h.told[id] })
	e.record.count(notTold, len(untold))
	if 2*len(untold) > len(must) {
		e.record.violate("of %d requests that were open for %s and more the webhook was not told of %d: %q", len(must), tellWithin, len(untold), untold)
	}
}

package reconcile_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/service"
	"agentd/sdk/wire"
	"agentd/test/killed"
	"agentd/test/setback"
)

// countingService answers calls, and counts them by id.
type countingService struct {
	mu    sync.Mutex
	calls map[string]int
}

// counted is how many calls were made, and how many of them more than once. Some may still come again.
func (c *countingService) counted() (calls, twice int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.calls {
		twice += min(n-1, 1)
	}
	return len(c.calls), twice
}

// serve starts a service that answers what the agents of a rig call.
func (c *countingService) serve(r *rig, url string) {
	r.t.Helper()
	parent, _ := desk()
	calc, err := service.New(parent.Services[0].Contract, service.Unlisted())
	r.check("make the service", err)
	service.Handle(calc, func(_ context.Context, call service.Call, in map[string]any) (map[string]any, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[call.IdempotencyKey]++
		return map[string]any{"sum": in["a"]}, nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Server{URL: url}.Run(ctx, calc) }()
	r.t.Cleanup(func() {
		stop()
		r.check("service", <-done)
	})
}

var rounds = flag.Int("reconcile.rounds", 1, "how often TestAfterRestarts_NoRunIsLost kills each server")

// Whatever the server forgets of what it confirmed, every run ends, once, as it would have.
func TestAfterRestarts_NoRunIsLost(t *testing.T) {
	const runs = 20
	t.Parallel()
	plans := []string{"add add add", "add clerk:add add", "both:add", "clerk:clerk", "say"}
	for name, of := range map[string]struct {
		setBack bool
		options []func(*rig)
	}{
		"killed, JetStream":   {false, stores["jetstream"]},
		"set back, JetStream": {true, stores["jetstream"]},
		"set back, Redis":     {true, stores["redis"]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := killed.New(t)
			server.Start()
			options := append([]func(*rig){func(r *rig) { r.interval = time.Hour }}, of.options...)
			r := startOn(t, broker.ConnectOptions{URL: server.URL(), Wait: true}, options...)
			c := &countingService{calls: map[string]int{}}
			c.serve(r, server.URL())
			chance := byChance(t)
			slowest := time.Duration(0)
			for range *rounds {
				var older map[streams.Zone]setback.Files
				if of.setBack {
					server.Stop()
					older = r.taken(server)
					server.Start()
				}
				var begun []begun
				for i := range runs {
					begun = append(begun, r.begin(plans[i%len(plans)]))
				}
				<-time.After(time.Duration(chance.IntN(500)) * time.Millisecond)
				server.Kill()
				r.put(server, older)
				server.Start()
				again := time.Now()
				for _, b := range begun {
					if code := r.doneWithin(b, 3*patience); code != "" { // what the first look was too early for is found by the second
						t.Errorf("%s ended with %s", b.subject, code)
					}
				}
				slowest = max(slowest, time.Since(again))
			}
			for subject, n := range r.messages(streams.Done, wire.KindDone) {
				if n != 1 {
					t.Errorf("%d terminal events are on %s", n, subject)
				}
			}
			calls, twice := c.counted()
			t.Logf("%d runs, %d calls, %d of them made more than once; the slowest round ended %s after its restart", *rounds*runs, calls, twice, slowest)
		})
	}
}

// A worker that was not there when the server went finds out that nobody has refilled the streams since.
func TestAfterRestarts_WorkerWasNotThere(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add")
	r.waiting(b, 1)
	call := r.conn.Subjects().Call(r.call(b))
	r.settled()
	r.stop()
	r.delete(call)
	r.interval = time.Hour // its passes come much later
	r.work()
	r.await("the call is made again", func() bool { return r.messages(streams.Out, wire.KindOut)[call] == 1 })
}

// standing is a store whose readers stand still until they are told to stop.
type standing struct {
	state.Store
	began   chan context.Context
	stopped chan error
}

func (s standing) Runs(ctx context.Context, _ string, _ int) ([]runner.StoredRun, string, error) {
	s.began <- ctx
	<-ctx.Done()
	s.stopped <- context.Cause(ctx)
	return nil, "", nil
}

// Who refills and does not have the lease any more stops: another one does it, and what ended long ago may be removed when that one is done.
// It begins anew when it has the lease again.
func TestAfterRestarts_WithoutTheLeaseItStops(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.stop()
	lease := "refill_" + r.conn.Server() + "_desk"
	o := r.options()
	store := standing{o.Store, make(chan context.Context, 10), make(chan error, 10)}
	o.Agents, o.Refuse, o.Store = o.Agents[:1], nil, store
	ctx, stop := context.WithCancel(r.context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reconcile.AfterRestarts(ctx, o)
	}()
	begins := func() {
		t.Helper()
		select {
		case held := <-store.began:
			if held.Err() != nil {
				t.Fatal("it begins without the lease")
			}
		case <-ended:
			t.Fatal("it does not begin")
		}
	}
	begins()
	r.check("take the lease away", r.conn.EndLease(r.context(), lease))
	if err := <-store.stopped; !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("who has lost the lease stops because of %v", err)
	}
	begins()
	if noted, err := r.conn.Refilled(r.context(), "desk"); err != nil || noted.Server == r.conn.Server() {
		t.Errorf("it is noted that streams are refilled: %+v, %v", noted, err)
	}
	stop()
	<-ended
}

// listings counts how often all runs are listed.
type listings struct {
	state.Store
	begun *atomic.Int64
}

func (s listings) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	if cursor == "" {
		s.begun.Add(1)
	}
	return s.Store.Runs(ctx, cursor, limit)
}

// A pass reads the heads of all runs, so it is made once, however many agents there are.
func TestAfterRestarts_OnePassIsForAllAgents(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.stop()
	o := r.options()
	store, log := listings{o.Store, new(atomic.Int64)}, &lines{want: "the server was started again", seen: make(chan string, 1)}
	agent := o.Agents[0]
	o.Agents, o.Refuse, o.Store, o.Logger = nil, nil, store, slog.New(slog.NewTextHandler(log, nil))
	for i := range 20 {
		agent.Name = fmt.Sprint("agent-", i)
		o.Agents = append(o.Agents, agent)
		r.check("note another server", r.conn.NoteRefilled(r.context(), wire.NameToken(agent.Name), "another"))
	}
	ctx, stop := context.WithCancel(r.context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reconcile.AfterRestarts(ctx, o)
	}()
	if told := <-log.seen; !strings.Contains(told, "agent-0 agent-1 ") || !strings.Contains(told, " agent-19]") {
		t.Errorf("the pass was for %s", told)
	}
	if n := store.begun.Load(); n != 1 {
		t.Errorf("all runs were listed %d times", n)
	}
	stop()
	<-ended
}

// lines passes on the first line that has a text.
type lines struct {
	want string
	seen chan string
}

func (l *lines) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.want) {
		select {
		case l.seen <- string(line):
		default:
		}
	}
	return len(line), nil
}

// Where the server has lost the end of a stream and its consumers have not noticed, what is published next is delivered.
func TestAfterRestarts_ConsumersAreAheadOfTheirStream(t *testing.T) {
	t.Parallel()
	server := killed.New(t)
	server.Start()
	r := startOn(t, broker.ConnectOptions{URL: server.URL(), Wait: true})
	r.stop()
	server.Kill()
	server.Start()
	r.await("it is connected again", r.conn.Connected)
	for _, ref := range r.consumers("clerk") {
		if ref.Zone == streams.Start || ref.Zone == streams.In {
			continue
		}
		_, err := r.conn.JetStream().ResetConsumerToSequence(r.context(), streams.Name(r.conn.Subjects(), ref.Zone), ref.Name, 1000)
		r.check("have the consumer ahead", err)
	}
	r.interval = time.Hour // its passes come much later
	r.work()
	if code := r.done(r.begin("clerk:say")); code != "" {
		t.Errorf("the run ended with %s", code)
	}
}

// What was told whoever started a run of an agent that nobody serves is told again when the server has forgotten it; what it has not forgotten,
// and what a run has whose agent was served once, is left alone.
func TestAfterRestarts_NobodyServesTheAgent(t *testing.T) {
	t.Parallel()
	r := start(t)
	var refused []begun
	for _, subject := range []string{"forgotten", "told"} {
		ev := wire.Event{
			ID: subject, Source: "com.test.client", Type: "ghost", Subject: subject, Time: time.UnixMilli(1_790_000_000_000), Data: []byte(`{"message":"say"}`),
		}
		r.check("start a run", r.conn.Start(r.context(), "ghost", ev))
		b := begun{"ghost", subject, wire.InitToken(ev.Source, ev.ID), wire.NewRunKey(subject)}
		if code := r.done(b); code != sdk.CodeUnknownAgent {
			t.Fatalf("the run of an agent that nobody serves ended with %q", code)
		}
		refused = append(refused, b)
	}
	finished := r.begin("say")
	r.done(finished)
	r.settled()
	r.stop()
	for _, b := range []begun{refused[0], finished} {
		r.delete(r.conn.Subjects().Done(b.agent, b.key, b.init))
	}
	for _, c := range r.divided(streams.AgentConsumers("desk")...) {
		r.check("forget that the agent was served", r.conn.JetStream().DeleteConsumer(r.context(), streams.Name(r.conn.Subjects(), c.Zone), c.Name))
	}
	r.agents, r.interval = r.agents[1:], time.Hour // passes come much later
	r.work()
	if code := r.done(refused[0]); code != sdk.CodeUnknownAgent {
		t.Errorf("who was refused is told %q", code)
	}
	report, err := reconcile.RefillUnserved(r.context(), r.options(), r.now().Add(-time.Minute))
	r.check("look a second time", err)
	if report.Inits != 3 || len(report.Found) > 0 {
		t.Errorf("a second look reports %+v", report)
	}
	for subject, n := range r.messages(streams.Done, wire.KindDone) {
		if n != 1 || strings.Contains(subject, ".desk.") {
			t.Errorf("%d terminal events are on %s", n, subject)
		}
	}
	if n := len(r.messages(streams.DLQ, wire.KindDLQ)); n > 0 {
		t.Errorf("there are %d dead letters", n)
	}
}

// What no pass that looks for what is missing would see is published again too: voids, refusals, and timers that were armed anew.
func TestRefill(t *testing.T) {
	t.Parallel()
	r := start(t)
	waiting := r.begin("add")
	r.waiting(waiting, 1)
	cancelled := r.begin("add")
	r.waiting(cancelled, 1)
	r.check("cancel", r.conn.Control(r.context(), wire.ControlCancel, "desk", cancelled.key, "", wire.Event{
		ID: "cancel", Source: "test", Type: wire.TypeCancel, Subject: cancelled.subject, Time: time.UnixMilli(1_790_000_000_000),
	}))
	r.done(cancelled)
	rival := wire.Event{ID: "rival", Source: "com.test.client", Type: "desk", Subject: waiting.subject, Time: time.UnixMilli(1_790_000_000_000), Data: []byte(`{"message":"say"}`)}
	r.check("start its rival", r.conn.Start(r.context(), "desk", rival))
	refused := begun{"desk", rival.Subject, wire.InitToken(rival.Source, rival.ID), waiting.key}
	if code := r.done(refused); code != sdk.CodeRunExists {
		t.Fatalf("the rival ended with %q", code)
	}
	r.settled()
	want := []map[string]int{r.messages(streams.Out, wire.KindOut), r.messages(streams.Out, wire.KindVoid), r.messages(streams.Done, wire.KindDone)}
	due := r.head(waiting).Timer
	for z, kinds := range map[streams.Zone][]wire.Kind{streams.Out: {wire.KindOut, wire.KindVoid}, streams.Done: {wire.KindDone}} {
		for _, kind := range kinds {
			for subject := range r.messages(z, kind) {
				if kind != wire.KindOut || subject == r.conn.Subjects().Call(r.call(waiting)) { // a void is for a call that is there
					r.delete(subject)
				}
			}
		}
	}
	r.check("arm an earlier timer", r.conn.ArmTimer(r.context(), "desk", waiting.key, due+time.Hour.Milliseconds()))
	for range 2 { // repeating it is harmless
		_, err := reconcile.Refill(r.context(), r.options(), r.now().Add(-time.Minute))
		r.check("refill", err)
	}
	got := []map[string]int{r.messages(streams.Out, wire.KindOut), r.messages(streams.Out, wire.KindVoid), r.messages(streams.Done, wire.KindDone)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls, voids and terminal events (-before +after):\n%s", diff)
	}
	armed, err := r.conn.LastDelivery(r.context(), streams.Timer, r.conn.Subjects().Timer(waiting.agent, waiting.key))
	if err != nil || armed == nil || string(armed.Data()) != fmt.Sprintf(`{"due":%d}`, due) {
		t.Errorf("armed: %v, %v, want one due at %d", armed, err, due)
	}
	if h := r.head(waiting); h.Status != core.StatusWaiting {
		t.Errorf("the run is %s", h.Status)
	}
}

// Streams that are made anew with another persistence get back what runs need of them.
func TestRun_StreamsMadeAnew(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			waiting, done := r.begin("add"), r.begin("say")
			r.waiting(waiting, 1)
			r.done(done)
			r.settled()
			rebuilt := func() []map[string]int {
				timers := r.messages(streams.Timer, wire.KindTimer)
				maps.DeleteFunc(timers, func(subject string, _ int) bool { return strings.Contains(subject, "."+streams.LeaseToken+".") })
				return []map[string]int{r.messages(streams.Out, wire.KindOut), r.messages(streams.Done, wire.KindDone), timers}
			}
			want := rebuilt()
			for _, mode := range []streams.PersistMode{streams.PersistDefault, streams.PersistAsync} {
				r.stop()
				for _, z := range r.setBack() {
					r.check("delete stream", r.conn.JetStream().DeleteStream(r.context(), streams.Name(r.conn.Subjects(), z)))
				}
				r.mode = mode
				r.provision()
				r.pass()
				if diff := cmp.Diff(want, rebuilt()); diff != "" {
					t.Errorf("%s: calls, terminal events and timers (-before +after):\n%s", mode, diff)
				}
				r.work()
			}
			r.answer(r.call(waiting))
			if code := r.done(waiting); code != "" {
				t.Errorf("the run ended with %s", code)
			}
		})
	}
}

package policies

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"agentd/internal/approval"
	"agentd/internal/broker"
	"agentd/internal/catalog"
	"agentd/internal/handler"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// world is one case: agents under random policies, which models have call tools with random arguments, and people who decide at random.
// Everything happens in one goroutine, at the times of the world's own clock.
type world struct {
	draw
	now      int64
	queue    []*message
	agenda   []appointment
	timers   map[string]int64
	subjects map[string][]byte
	sequence uint64

	store   *memory.Store
	catalog *catalog.Catalog
	grants  grants
	runner  *runner.Runner
	handler *handler.Handler

	evaluator
	agents []*agent
	// pinned is the version of its agent's policy that each run began with; required are the patterns of its init event.
	pinned   map[string]int
	required map[string][]string
	turns    map[string]int
	// made are the calls that were made, by id.
	made map[string]bool
	// published are the decisions, by the ids of their events.
	published map[string][]*decision
	tally     tally
	wrong     []string
	// log receives what happens, line by line; nil is nobody.
	log func(format string, args ...any)
}

// appointment is something that happens outside of the worker at a time.
type appointment struct {
	at int64
	do func()
}

// message waits to be delivered.
type message struct {
	stream, subject string
	data            []byte
	sequence        uint64
	received        int64
	delivered       int
}

// epoch is when cases begin, in Unix milliseconds.
const epoch = 1_700_000_000_000

var subjects = wire.DefaultSubjects()

// play plays the case of a seed, and returns what was made that must not be.
func play(seed uint64, t tally, log func(format string, args ...any)) []string {
	w := &world{
		draw: draw{rand.New(rand.NewPCG(seed, 0))}, now: epoch, timers: map[string]int64{}, subjects: map[string][]byte{},
		store: memory.New(), pinned: map[string]int{}, required: map[string][]string{}, turns: map[string]int{}, made: map[string]bool{}, published: map[string][]*decision{},
		tally: t, log: log,
	}
	w.grants.world = w
	w.agents = w.drawAgents()
	w.catalog = catalog.New(w.store, w.provider, approval.Options{Grants: &w.grants, Identity: true})
	w.load()
	w.restart()
	for i := range 1 + w.IntN(2) {
		w.later(int64(w.IntN(60))*second, func() { w.begin(fmt.Sprintf("run-%d", i)) })
	}
	if w.one(3) {
		w.later(int64(30+w.IntN(120))*second, w.reload)
	}
	if w.one(3) {
		w.later(int64(w.IntN(120))*second, w.restart)
	}
	for steps := 0; w.step(); steps++ {
		if steps > 2000 {
			w.violate("the case does not come to rest")
			break
		}
	}
	if err := w.catalog.Close(); err != nil {
		w.violate("close the catalog: %v", err)
	}
	return w.wrong
}

func (w *world) violate(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
	w.trace("WRONG: "+format, args...)
}

func (w *world) trace(format string, args ...any) {
	if w.log != nil {
		w.log("%4d s  "+format, append([]any{(w.now - epoch) / second}, args...)...)
	}
}

func (w *world) later(delay int64, do func()) {
	w.agenda = append(w.agenda, appointment{w.now + delay, do})
}

// step lets the next thing happen, and reports false when there is none.
func (w *world) step() bool {
	if len(w.queue) > 0 {
		m := w.queue[0]
		w.queue = w.queue[1:]
		m.delivered++
		w.handler.Handle(context.Background(), &delivery{message: m, world: w})
		return true
	}
	next := appointment{at: -1}
	index := -1
	for i, a := range w.agenda {
		if next.at < 0 || a.at < next.at {
			next, index = a, i
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(w.timers)) {
		if at := w.timers[subject]; next.at < 0 || at < next.at {
			next, index = appointment{at, func() { w.fire(subject) }}, -1
		}
	}
	if next.at < 0 {
		return false
	}
	if index >= 0 {
		w.agenda = slices.Delete(w.agenda, index, index+1)
	}
	w.now = max(w.now, next.at)
	next.do()
	return true
}

func (w *world) fire(subject string) {
	due := w.timers[subject]
	delete(w.timers, subject)
	w.enqueue("AGENTD_TMR", subject, fmt.Appendf(nil, `{"due":%d}`, due))
}

func (w *world) enqueue(stream, subject string, data []byte) {
	w.sequence++
	w.queue = append(w.queue, &message{stream: stream, subject: subject, data: data, sequence: w.sequence, received: w.now})
}

func (w *world) send(stream, subject string, ev wire.Event) {
	data, err := ev.Encode()
	if err != nil {
		panic(fmt.Sprintf("policies: encode an event: %v", err))
	}
	w.enqueue(stream, subject, data)
}

// begin starts a run of the desk, which may put further tools of it under permission.
func (w *world) begin(run string) {
	ev := wire.Event{ID: run, Source: "client", Type: "desk", Subject: run, Data: json.RawMessage(`{"message":"go"}`)}
	if w.one(4) {
		w.required[run] = []string{pick(w.draw, "pay", "b*", "note")}
		ev.Extensions = map[string]any{wire.RequirePermission: w.required[run][0]}
	}
	w.send("AGENTD_START", subjects.Start("desk")+"."+initiator(run), ev)
}

// initiator is the principal that starts a run, or the one that led to it.
func initiator(run string) string {
	if strings.HasPrefix(run, "run-0") {
		return "ann"
	}
	return "bob"
}

// restart replaces the worker, with all that it remembers.
func (w *world) restart() {
	log := slog.New(slog.DiscardHandler)
	w.runner = runner.New(runner.Options{Store: w.store, Publisher: publisher{w}, Env: w, Catalog: w.catalog, Subjects: subjects, Logger: log})
	w.handler = handler.New(handler.Options{
		Runner: w.runner, DeadLetters: publisher{w}, Env: w, Subjects: subjects, Logger: log, Services: w.catalog.Serving,
	})
}

// Now implements runner.Env, as do the methods that follow.
func (w *world) Now() int64 { return w.now }

func (w *world) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func (w *world) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (w *world) Parallel(fs ...func()) {
	for _, f := range fs {
		f()
	}
}

func (w *world) Beat(f func(), _ time.Duration, _ func() bool) { f() }

func (w *world) Random() string { return fmt.Sprintf("%026x", w.Uint64()) }

// publisher implements runner.Publisher and handler.DeadLetters.
type publisher struct{ *world }

// Publish implements runner.Publisher, as do the methods that follow.
func (p publisher) Publish(_ context.Context, subject string, ev wire.Event) error {
	data, err := ev.Encode()
	if err != nil {
		return err
	}
	if former, there := p.subjects[subject]; there {
		if !bytes.Equal(former, data) {
			return sdk.Errorf(sdk.CodeConflict, "another event is on %s", subject)
		}
		return nil
	}
	p.subjects[subject] = data
	address, err := subjects.Parse(subject)
	if err != nil {
		return err
	}
	switch {
	case address.Kind == wire.KindOut && ev.Type == sdk.TypePermissionRequest:
		p.asked(address.Call, ev)
	case address.Kind == wire.KindOut:
		p.called(address.Call, ev)
		if _, agent := p.catalog.Serving(address.Call.Type); agent {
			p.enqueue("AGENTD_OUT", subject, data)
		}
	case address.Kind == wire.KindVoid:
		if _, agent := p.catalog.Serving(address.Call.Type); agent {
			p.enqueue("AGENTD_OUT", subject, data)
		}
	case address.Kind == wire.KindIn: // an agent answers one
		p.enqueue("AGENTD_IN", subject, data)
	}
	return nil
}

func (p publisher) Restore(ctx context.Context, subject string, event wire.Event) error {
	return p.Publish(ctx, subject, event)
}

func (p publisher) Published(_ context.Context, subject string) (bool, error) {
	_, there := p.subjects[subject]
	return there, nil
}

// Purged implements runner.Publisher: nobody removes anything here.
func (publisher) Purged(context.Context) (int64, error) { return 0, nil }

func (p publisher) ArmTimer(_ context.Context, agent string, run wire.RunKey, due int64) error {
	p.timers[subjects.Fire(agent, run)] = due
	return nil
}

func (publisher) Live(wire.Live) {}

func (publisher) Wake(string, wire.RunKey) {}

func (p publisher) DeadLetter(_ context.Context, d broker.Delivery, reason sdk.Code, detail string) error {
	p.tally.add("dead letter " + string(reason))
	p.trace("dead letter %s: %s", reason, detail)
	if ev, err := wire.DecodeEvent(nil, d.Data()); err == nil {
		for _, lost := range p.published[ev.ID] {
			lost.late = true
		}
	}
	if reason == sdk.CodeInternal {
		p.violate("%s is dead-lettered: %s", d.Subject(), detail)
	}
	return nil
}

// called is a service that receives a call.
func (w *world) called(address wire.CallAddress, ev wire.Event) {
	tool := strings.TrimPrefix(ev.Type, "shop.")
	w.check(ev.Agent, ev.Subject, ev.ID, tool, ev.Data)
	if tool == "clerk" {
		return
	}
	answer := wire.Event{
		ID: "a-" + ev.ID, Source: "service", Type: ev.Type + ".done", Subject: ev.Subject, ParentID: ev.ID, Data: json.RawMessage(`{}`),
	}
	w.later(int64(w.IntN(90))*second, func() { w.send("AGENTD_IN", subjects.Reply(address), answer) })
}

// delivery implements broker.Delivery.
type delivery struct {
	*message
	world *world
}

func (d *delivery) Stream() string               { return d.stream }
func (d *delivery) Consumer() string             { return "workers" }
func (d *delivery) Sequence() uint64             { return d.sequence }
func (d *delivery) Subject() string              { return d.subject }
func (d *delivery) Header(string) string         { return "" }
func (d *delivery) Headers() map[string][]string { return nil }
func (d *delivery) Data() []byte                 { return d.data }
func (d *delivery) Delivered() int               { return d.delivered }
func (d *delivery) Backlog() bool                { return false }
func (d *delivery) Received() int64              { return d.received }
func (d *delivery) Ack() error                   { return nil }
func (d *delivery) InProgress() error            { return nil }

func (d *delivery) Nak(delay time.Duration) error {
	d.world.later(delay.Milliseconds(), func() { d.world.queue = append(d.world.queue, d.message) })
	return nil
}

// grants implements approval.GrantStore.
type grants struct {
	*world
	kept []sdk.GrantRecord
	used map[string]string // by call
}

// Record implements approval.GrantStore.
func (g *grants) Record(_ context.Context, record sdk.GrantRecord) error {
	if !slices.ContainsFunc(g.kept, func(k sdk.GrantRecord) bool { return k.ID == record.ID }) {
		g.kept = append(g.kept, record)
	}
	return nil
}

// Reserve implements approval.GrantStore.
func (g *grants) Reserve(_ context.Context, c sdk.PermissionCheck) (string, error) {
	reserved := g.used[c.Call]
	for i := range g.kept {
		k := &g.kept[i]
		if reserved != "" && reserved != k.ID {
			continue
		}
		uses := 0
		for call, id := range g.used {
			if id == k.ID && call != c.Call {
				uses++
			}
		}
		if k.Principal != c.Initiator || k.Agent != c.Agent || k.Tool != c.Tool || k.Uses > 0 && uses >= k.Uses ||
			k.Expires > 0 && k.Expires <= g.now || len(c.Terms.Unmet(k.Consent(), c.Initiator)) > 0 {
			continue
		}
		if g.used == nil {
			g.used = map[string]string{}
		}
		g.used[c.Call] = k.ID
		return k.ID, nil
	}
	return "", nil
}

// tally counts what happened in all cases, so that a test which shows nothing is seen.
type tally map[string]int

func (t tally) add(what string) { t[cmp.Or(what, "nothing")]++ }

// Package worker wires broker, store, catalog, runner and handler into a worker. sdk/worker is its public face.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentd/internal/answers"
	"agentd/internal/approval"
	"agentd/internal/broker"
	"agentd/internal/broker/buckets"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/catalog"
	"agentd/internal/contracts"
	"agentd/internal/handler"
	"agentd/internal/runner"
	"agentd/internal/signature"
	"agentd/internal/telemetry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Options are what a worker is made of. Conn and Store stay the caller's to close.
type Options struct {
	Conn   *broker.Conn
	Store  runner.Store
	Models catalog.Models
	Agents []sdk.Agent
	// Slots is how many messages are handled at once; 0 is sdk.DefaultSlots.
	Slots int
	// Grace is how long a stopping worker lets activations reach their next step; 0 is 30 s.
	Grace  time.Duration
	Logger *slog.Logger
	// Identity refuses runs and decisions without a principal that the broker enforced. Keys verify signed decisions.
	Identity bool
	Keys     signature.Keys
	// EarlyDecisions is that of runner.Options.
	EarlyDecisions time.Duration
	// PlainEntries is as in StoreOptions: an answer and a quick reply to it are not one entry either.
	PlainEntries bool
	// Env is nil for the broker's clock, goroutines and randomness.
	Env runner.Env
	// Cache is how many bytes of the states of waiting runs stay in memory; see runner.Options.
	Cache int
	// Heartbeat is how often a delivery is extended; 0 is streams.Heartbeat. Who shortens AckWait shortens it too.
	Heartbeat time.Duration
	// Publisher and DeadLetters are nil for Conn.
	Publisher   runner.Publisher
	DeadLetters handler.DeadLetters
	// Reconcile is the zero value where nothing is looked after.
	Reconcile Reconcile
	// Serving, unless nil, is called once, by Run: when the worker answers who asks of its runs, and begins to take messages.
	Serving func()
	// Gate is shared by the workers of a process; nil is for one that is the only one.
	Gate *runner.Isolation
	// Telemetry shows what happens; nil shows nothing.
	Telemetry *telemetry.Telemetry
	// Around, unless nil, gets every delivery first and passes it, or another in its place, to handle.
	Around func(ctx context.Context, d broker.Delivery, handle func(context.Context, broker.Delivery))
}

// Worker serves agents.
type Worker struct {
	Options
	// setting guards Agents while the worker runs.
	setting sync.Mutex
	// away are the agents of the toolsets that were said to be away, by the toolset's name; setting guards it too.
	away map[string][]string
	// conflicts are those with the registry that were said; setting guards it too.
	conflicts map[string]bool
	catalog   *catalog.Catalog
	runner    *runner.Runner
	handler   *handler.Handler
	outages   *outages
	indexer   *indexer
	audience  *audience
	unrouted  *unrouted
	// store is Options.Store as it was given, without telemetry around it.
	store runner.Store
	// reading are the consumers that Run reads: those of the agents that there were at first.
	reading []streams.ConsumerRef
	bound   bound
	// diagnosis is that of watch, and rooms are what it saw last of the streams that others publish to; nil is nothing yet.
	diagnosis diagnosis
	rooms     atomic.Pointer[[]broker.Room]
}

// New compiles the agents and connects their toolsets, which are closed when Run returns or New fails. Nothing is read
// from the broker yet.
func New(o Options) (*Worker, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Env == nil {
		o.Env = realEnv{o.Conn}
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = streams.Heartbeat
	}
	if o.Publisher == nil {
		o.Publisher = publisher{o.Conn}
	}
	if o.DeadLetters == nil {
		o.DeadLetters = o.Conn
	}
	store := o.Store
	o.show()
	w := &Worker{Options: o, store: store, outages: newOutages(o.Conn, o.Logger), catalog: catalog.New(o.Store, o.Models, approval.Options{
		Grants: buckets.GrantsOf(o.Conn), Identity: o.Identity, Keys: o.Keys,
	})}
	if err := w.catalog.Set(o.Agents); err != nil {
		return nil, err
	}
	w.tellAway()
	w.reading = w.consumers()
	w.audience = newAudience(w.served())
	w.unrouted = &unrouted{broker: o.Conn, refuse: w.refuseUnknown, logger: o.Logger, waiting: map[string][]toRoute{}}
	w.indexer = newIndexer(o.Conn, store, o.Logger)
	w.runner = runner.New(runner.Options{
		Store: o.Store, Publisher: o.Publisher, Env: o.Env, Catalog: w.catalog, Subjects: o.Conn.Subjects(), Logger: o.Logger,
		Cache: o.Cache, Observer: o.Telemetry.Observer(), Outages: w.outages, Index: w.indexer, Audience: w.audience, Isolation: o.Gate, Silence: w.catalog.Silence(),
		EarlyDecisions: o.EarlyDecisions, Apart: o.PlainEntries,
	})
	w.handler = handler.New(handler.Options{
		Runner: w.runner, DeadLetters: o.DeadLetters, Env: o.Env, Subjects: o.Conn.Subjects(), Logger: o.Logger,
		Services: w.catalog.Serving, Heartbeat: o.Heartbeat, Silence: w.catalog.Silence(),
	})
	return w, nil
}

// show puts telemetry around what the worker uses.
func (o *Options) show() {
	o.Store, o.Models = o.Telemetry.Store(o.Store, kindOf(o.Store)), o.Telemetry.Models(o.Models)
	o.Publisher = o.Telemetry.Publisher(o.Publisher, o.Conn.Subjects())
	o.DeadLetters = o.Telemetry.DeadLetters(o.DeadLetters)
}

// Runner gives access to journals and counters.
func (w *Worker) Runner() *runner.Runner { return w.runner }

// Run serves until ctx ends, then drains: it cancels no run. When it returns, the agents' toolsets are closed. It can be
// called once.
func (w *Worker) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, w.catalog.Close()) }()
	defer w.watch(ctx)()
	stopAnswering, err := w.offer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopAnswering()) }()
	defer w.followToolsets(ctx)()
	defer w.follow(ctx)()
	stopListening, err := w.Conn.OnWake(func(run wire.RunKey) { w.wake(ctx, run) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopListening()) }()
	stopAudience, err := w.audience.listen(ctx, w.Conn, w.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopAudience()) }()
	stopOutages, err := w.outages.listen(ctx, w.models())
	if err != nil {
		return err
	}
	defer stopOutages()
	defer w.indexer.run(ctx)()
	reconciled, err := w.reconcile(ctx)
	if err != nil {
		return err
	}
	defer reconciled()
	stopMeasuring, err := w.level(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopMeasuring()) }()
	reading, err := w.Conn.Divided(ctx, w.reading...)
	if err != nil {
		return err
	}
	if w.Serving != nil {
		w.Serving()
	}
	w.Conn.Consume(ctx, broker.ConsumeOptions{
		Consumers: reading, Slots: w.Slots, Grace: w.Grace, Drain: w.runner.Drain,
		Handle: w.around(),
	})
	w.unrouted.looking.Wait()
	return nil
}

// agents are the agents as they are now.
func (w *Worker) agents() []sdk.Agent {
	w.setting.Lock()
	defer w.setting.Unlock()
	return w.Agents
}

// served are the tokens of the agents that the worker starts with.
func (w *Worker) served() map[string]bool {
	agents := map[string]bool{}
	for _, a := range w.agents() {
		agents[wire.NameToken(a.Spec.Name)] = true
	}
	return agents
}

// models are the keys of the models that those agents ask.
func (w *Worker) models() []string {
	keys := map[string]bool{}
	for agent := range w.served() {
		if compiled, ok := w.catalog.Current(agent); ok {
			keys[compiled.ModelKey] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// consumers are those of the agents that the worker starts with.
func (w *Worker) consumers() []streams.ConsumerRef {
	var refs []streams.ConsumerRef
	for _, a := range w.Agents {
		refs = append(refs, streams.AgentConsumers(a.Spec.Name)...)
	}
	return append(refs, streams.ConsumerRef{Zone: streams.Start, Name: streams.UnroutedConsumer})
}

// follow begins to follow the registry, and returns when its state is known. The returned function ends that.
func (w *Worker) follow(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.followRegistry(ctx, ready)
	}()
	select {
	case <-ready:
	case <-ctx.Done():
	case <-time.After(firstRead):
		w.Logger.Warn("the registry of contracts has not answered yet; a removed version is not noticed before it does")
	}
	return func() {
		cancel()
		<-ended
	}
}

// wakeTimeout bounds the look at one run's journal; a wake that comes to nothing is only slower.
const wakeTimeout = 5 * time.Second

func (w *Worker) wake(ctx context.Context, run wire.RunKey) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	if err := w.runner.Wake(ctx, run); err != nil {
		w.Logger.Warn("run could not be woken", "run", run, "error", err)
	}
}

// around is handle with what Options put around it.
func (w *Worker) around() func(context.Context, broker.Delivery) {
	if w.Around == nil {
		return w.handle
	}
	return func(ctx context.Context, d broker.Delivery) { w.Around(ctx, d, w.handle) }
}

func (w *Worker) handle(ctx context.Context, d broker.Delivery) {
	w.Telemetry.Delivered(ctx, d.Consumer(), d.Delivered())
	if d.Consumer() == streams.UnroutedConsumer {
		w.routeInit(ctx, d)
		return
	}
	w.handler.Handle(ctx, d)
}

// Plan is what the worker's agents need on the broker.
func Plan(agents []sdk.AgentSpec) provision.Plan {
	p := provision.Plan{AnswersNeeded: answers.Needed(agents).For}
	served := map[string]bool{}
	for _, a := range agents {
		p.Agents = append(p.Agents, provision.Agent{Name: a.Name, Type: a.Contract.Type})
		served[a.Contract.Type] = true
		p.LongestRun = max(p.LongestRun, time.Duration(a.Limits.DeadlineMillis)*time.Millisecond)
		for _, s := range a.Services {
			p.LongestCall = max(p.LongestCall, time.Duration(s.TimeoutMillis)*time.Millisecond)
		}
		if a.Limits.DeadlineMillis == 0 {
			p.LongestRun = max(p.LongestRun, sdk.DefaultRunDeadline)
		}
	}
	for _, s := range services(agents) {
		if !served[s.Type] {
			p.Services = append(p.Services, s)
		}
	}
	return p
}

// services are the lanes that the agents' calls go to, people's included.
func services(agents []sdk.AgentSpec) []provision.Service {
	plans := []provision.Service{
		{Domain: sdk.HumanDomain, Type: sdk.TypeQuestion},
		{Domain: sdk.HumanDomain, Type: sdk.TypeConversationTurn},
		{Domain: sdk.HumanDomain, Type: sdk.TypePermissionRequest},
	}
	for _, a := range agents {
		for _, domain := range approval.Domains(a.Permissions) {
			if plan := (provision.Service{Domain: domain, Type: sdk.TypePermissionRequest}); !slices.Contains(plans, plan) {
				plans = append(plans, plan)
			}
		}
		for _, domain := range approval.ReviewDomains(a.Plan) {
			if plan := (provision.Service{Domain: domain, Type: sdk.TypePlanReview}); !slices.Contains(plans, plan) {
				plans = append(plans, plan)
			}
		}
		for _, s := range a.Services {
			if contracts.IsReference(s) {
				continue // where its calls go is not known yet
			}
			domains := s.Domains
			if len(domains) == 0 {
				domains = []string{s.Contract.Domain}
			}
			for _, d := range domains {
				plan := provision.Service{Domain: d, Type: s.Contract.Type}
				if !slices.Contains(plans, plan) {
					plans = append(plans, plan)
				}
			}
		}
	}
	return plans
}

// Ready returns nil when the worker can do its work, or what is missing.
func (w *Worker) Ready(ctx context.Context) error {
	if !w.Conn.Connected() {
		return sdk.Errorf(sdk.CodeUnavailable, "no connection to NATS")
	}
	if _, err := w.Store.Head(ctx, wire.NewRunKey("")); err != nil && !errors.Is(err, runner.ErrNotFound) {
		return fmt.Errorf("store: %w", err)
	}
	if s, ok := w.Store.(interface{ Ready() error }); ok {
		if err := s.Ready(); err != nil {
			return err
		}
	}
	if err := w.bound.check(ctx, w.Conn, w.reading); err != nil {
		return err
	}
	return w.diagnosis.check()
}

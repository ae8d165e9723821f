package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/contracts"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// errVoided is why a call's context ended: nobody waits for the call any more.
var errVoided = errors.New("the call was cancelled or timed out")

// serving is a service while it runs.
type serving struct {
	*Service
	handlers map[string]handler
	conn     *broker.Conn
	log      *slog.Logger
	grace    time.Duration
	active   *activeCalls
	hands    *hands
	// calls counts what was answered, errors what of it with an error.
	calls, errors atomic.Uint64
	// unlisted is set when it was reported that the contract is not in the registry.
	unlisted bool
	observer Observer
	// heartbeat is how often a delivery is extended.
	heartbeat time.Duration
	// patience is how long a handler may go on after its context ended before the call is answered without it.
	patience time.Duration
	// withDeadline ends a handler's context when its call is due.
	withDeadline func(context.Context, time.Time) (context.Context, context.CancelFunc)
}

// run serves until ctx ends and the handlers have finished.
func (s *serving) run(ctx context.Context) {
	var background sync.WaitGroup
	var consumers []streams.ConsumerRef
	for _, domain := range s.domains {
		ref := streams.ServiceConsumer(domain, s.contract.Type)
		consumers = append(consumers, ref)
		background.Go(func() { s.announceMissing(ctx, ref) })
		defer s.listenVoid(domain)()
	}
	s.conn.Consume(ctx, broker.ConsumeOptions{Consumers: s.conn.AwaitReading(ctx, consumers...), Slots: s.slots, Grace: s.grace, Handle: s.handle})
	s.hands.end()
	background.Wait()
}

// announceMissing says what to do about a consumer that does not exist, on any of the streams that calls are divided into. It is waited for.
func (s *serving) announceMissing(ctx context.Context, ref streams.ConsumerRef) {
	parts, err := s.conn.Reading(ctx, ref)
	exists := err == nil
	for i := 0; i < len(parts) && exists && err == nil; i++ {
		exists, err = s.conn.HasConsumer(ctx, parts[i])
	}
	if errors.Is(err, broker.ErrNotStored) {
		err = nil
	}
	switch {
	case ctx.Err() != nil, exists && err == nil:
	case err != nil:
		s.log.Warn("whether the service's consumer exists is unknown", "consumer", ref.Name, "error", err)
	default:
		s.log.Error("the service's consumer does not exist; no call arrives before it does",
			"consumer", ref.Name, "remedy", "run: agentd provision, with a configuration that has the contract")
	}
}

// listenVoid hears of voided calls at once, until the returned function is called. Through the consumer they come as well,
// but only to one of the programs that serve the contract, and only when it has a free slot.
func (s *serving) listenVoid(domain string) (stop func()) {
	subjects := s.conn.Subjects()
	filter := fmt.Sprintf("%s.%s.%s.%s.>", subjects.Root(), wire.KindVoid, wire.DomainToken(domain), wire.NameToken(s.contract.Type))
	unsubscribe, err := s.conn.Tail(filter, func(subject string, _ map[string][]string, _ []byte) {
		// Whoever may make a consumer may have other messages delivered here: they keep the subject that they came on.
		if address, err := subjects.Parse(subject); err == nil && address.Kind == wire.KindVoid {
			s.active.void(address.Call.Call)
		}
	})
	if err != nil {
		s.log.Warn("voided calls may be noticed late", "error", err)
		return func() {}
	}
	return func() {
		if err := unsubscribe(); err != nil {
			s.log.Debug("subscription to voided calls could not be ended", "error", err)
		}
	}
}

// handle settles one delivery.
func (s *serving) handle(ctx context.Context, d broker.Delivery) {
	s.observer.Delivered(ctx, d.Consumer(), d.Delivered())
	address, err := s.conn.Subjects().Parse(d.Subject())
	if err != nil {
		s.reject(ctx, d, err)
		return
	}
	if address.Kind == wire.KindVoid {
		s.active.void(address.Call.Call)
		s.ack(d)
		return
	}
	c, err := s.readCall(address, d)
	if err != nil {
		s.reject(ctx, d, err)
		return
	}
	s.serve(ctx, d, c)
}

// serve answers a call and acknowledges it when the answer is stored. A delivery that is left unsettled comes again.
func (s *serving) serve(ctx context.Context, d broker.Delivery, c Call) {
	id := c.Event.ID
	handling, state := s.active.begin(ctx, id)
	switch state {
	case running:
		return // the delivery in hand settles this one too
	case void:
		s.ack(d)
		return
	case begun:
	}
	defer s.active.end(id)
	stop := s.extend(d)
	defer stop()
	work, parent, end := s.observer.Serve(handling, &c.Event)
	var sent *wire.Event
	defer func() { end(work, sent) }()
	i := s.invoke(work, &c)
	answer, err := i.wait(s.patience)
	switch {
	case ctx.Err() != nil:
		s.log.Warn("call is left to another delivery: the program stops", "call", id)
		return
	case errors.Is(context.Cause(handling), errVoided):
		s.log.Debug("call was voided while it was handled", "call", id)
	default:
		event := s.response(c, answer, err)
		event.TraceParent = parent
		err := s.respond(handling, c, event)
		switch {
		case err == nil:
			s.count(event)
			sent = &event
		case errors.Is(context.Cause(handling), errVoided):
			s.log.Debug("call was voided before its answer was stored", "call", id)
		default:
			s.log.Error("call could not be answered; it will be delivered again", "call", id, "error", err)
			return
		}
	}
	stop()
	s.ack(d)
	if !i.finished() {
		s.log.Error("handler ignores the end of its context and keeps its slot", "call", id)
		<-i.done
	}
}

func (s *serving) count(answer wire.Event) {
	s.calls.Add(1)
	if answer.Type == wire.ErrorType(s.contract.Type) {
		s.errors.Add(1)
	}
}

// extend keeps the delivery from being given to others until the returned function is called, which may be repeated.
func (s *serving) extend(d broker.Delivery) (stop func()) {
	return broker.Beat(s.heartbeat, func() bool {
		if err := d.InProgress(); err != nil {
			s.log.Warn("delivery could not be extended", "subject", d.Subject(), "error", err)
		}
		return true
	})
}

// ack acknowledges. A lost acknowledgement means another delivery, which finds the answer stored.
func (s *serving) ack(d broker.Delivery) {
	if err := d.Ack(); err != nil {
		s.log.Warn("delivery could not be acknowledged", "subject", d.Subject(), "error", err)
	}
}

// reject dead-letters what is not a call and acknowledges it. Where the user may not store dead letters, the log alone tells of it.
func (s *serving) reject(ctx context.Context, d broker.Delivery, problem error) {
	s.log.Warn("message is not a call and is dead-lettered", "subject", d.Subject(), "error", problem)
	stop := s.extend(d) // else it comes again while the stream of dead letters is away, and takes one slot after the other
	defer stop()
	domain := s.domains[slices.IndexFunc(s.domains, func(domain string) bool { // each has its consumer
		return streams.ServiceConsumer(domain, s.contract.Type).Name == d.Consumer()
	})]
	err := s.conn.DeadCall(ctx, d, domain, s.contract.Type, sdk.AsError(problem).Code, problem.Error())
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		s.log.Warn("message is passed over, as this user may not store dead letters", "subject", d.Subject(), "error", err)
	case err != nil:
		s.log.Error("dead letter could not be stored; it will be tried again", "subject", d.Subject(), "error", err)
		return
	}
	stop()
	s.ack(d)
}

// invocation is a handler at work, in another goroutine: one that ignores its context must not keep the call.
type invocation struct {
	ctx  context.Context
	done chan struct{}
	// answer and err are for readers after done.
	answer Answer
	err    error
}

// invoke checks the call and starts its handler. It sets the call's version.
func (s *serving) invoke(ctx context.Context, c *Call) *invocation {
	i := &invocation{ctx: ctx, done: make(chan struct{})}
	data, err := s.admit(c)
	if err != nil {
		i.err = err
		close(i.done)
		return i
	}
	ctx, cancel := s.withDeadline(ctx, c.due)
	i.ctx = ctx
	i.err = errors.New("the handler ended its goroutine") // unless it returns or panics
	call := *c
	s.hands.do(func() { i.run(cancel, s.handlers[c.Version], call, data) })
	return i
}

func (i *invocation) run(cancel func(), h handler, c Call, data []byte) {
	defer close(i.done)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			i.err = fmt.Errorf("the handler panicked: %v\n%s", p, debug.Stack())
		}
	}()
	err := i.ctx.Err()
	if err == nil { // a call that is due already is not begun
		i.answer, err = h(i.ctx, c, data)
	}
	if errors.Is(i.ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded) {
		err = overdue(err)
	}
	i.err = err
}

// wait returns what the handler returned. Patience is how long it may go on after its context ended.
func (i *invocation) wait(patience time.Duration) (Answer, error) {
	select {
	case <-i.done:
		return i.answer, i.err
	case <-i.ctx.Done():
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-i.done:
		return i.answer, i.err
	case <-late.C:
		return Answer{}, overdue(i.ctx.Err())
	}
}

func (i *invocation) finished() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

// overdue is the error of a call whose time is up, unless the handler made an *sdk.Error of it.
func overdue(err error) error {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e
	}
	return &sdk.Error{Code: sdk.CodeDeadline, Message: "the service took too long", Retryable: true, Cause: err}
}

// admit finds the version that is called and returns the call's data with defaults, if it is valid.
func (s *serving) admit(c *Call) ([]byte, error) {
	version, err := s.called(c.Event)
	if err != nil {
		return nil, err
	}
	c.Version = version
	accepts := s.versions[version].Accepts
	data, err := accepts.ApplyDefaults(c.Event.Data)
	if err != nil {
		return nil, err
	}
	if faults := accepts.Validate(data); len(faults) > 0 {
		return nil, &sdk.Error{
			Code: sdk.CodeContractViolation, Faults: faults,
			Message: "the data does not fit " + sdk.SchemaRef(s.contract.URI, version),
		}
	}
	return data, nil
}

// called is the version of the contract that the event names.
func (s *serving) called(e wire.Event) (string, error) {
	if e.Type != s.contract.Type {
		return "", sdk.Errorf(sdk.CodeInvalidEvent, "this service answers %s and was called with %s", s.contract.Type, e.Type)
	}
	if e.DataSchema == "" {
		return contracts.Resolve(s.contract, contracts.Latest)
	}
	uri, version, ok := contracts.ParseSchemaRef(e.DataSchema)
	if !ok {
		return "", sdk.Errorf(sdk.CodeInvalidEvent, "dataschema %q is not of the form <uri>/<version>", e.DataSchema)
	}
	if !wire.SameURI(uri, s.contract.URI) {
		return "", sdk.Errorf(sdk.CodeContractMissing, "this service serves %s, not %s", s.contract.URI, uri)
	}
	if s.versions[version] == nil {
		_, err := contracts.CompileVersion(s.contract, version)
		return "", err
	}
	return version, nil
}

package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// delivery implements broker.Delivery.
type delivery struct {
	*fakeBroker
	*message
	worker *worker
	number int
}

var _ broker.Delivery = (*delivery)(nil)

// Stream implements broker.Delivery, as do the methods that follow.
func (d *delivery) Stream() string               { return d.stream }
func (d *delivery) Consumer() string             { return "workers" }
func (d *delivery) Sequence() uint64             { return d.sequence }
func (d *delivery) Subject() string              { return d.subject }
func (d *delivery) Header(string) string         { return "" }
func (d *delivery) Headers() map[string][]string { return nil }
func (d *delivery) Data() []byte                 { return d.data }
func (d *delivery) Delivered() int               { return d.number }
func (d *delivery) Backlog() bool                { return false }
func (d *delivery) Received() int64              { return d.received }

var errBroker = errors.New("the broker cannot be reached")

func (d *delivery) Ack() error {
	d.pause(atAck)
	if d.strikes(ackLost) {
		return nil
	}
	if d.log != nil {
		d.trace("ack     %s %d by %s", d.stream, d.sequence, d.worker.name)
	}
	d.remove(d.message)
	d.pause(atAcked)
	return nil
}

func (d *delivery) Nak(delay time.Duration) error {
	d.pause(atNak)
	if d.strikes(ackLost) {
		return errBroker
	}
	if d.log != nil {
		d.trace("nak     %s %d by %s, for %v", d.stream, d.sequence, d.worker.name, delay)
	}
	d.due = d.now + delay.Milliseconds()
	return nil
}

func (d *delivery) InProgress() error {
	d.pause(atHeartbeat)
	if d.worker.deaf {
		return errBroker
	}
	if !d.message.removed {
		d.due = max(d.due, d.now+ackWait)
	}
	return nil
}

// publisher implements runner.Publisher and handler.DeadLetters.
type publisher struct{ *simulation }

// Publish implements runner.Publisher.
func (p publisher) Publish(ctx context.Context, subject string, event wire.Event) error {
	address, err := subjects.Parse(subject)
	if err != nil {
		p.violate("publish", "subject %s: %v", subject, err)
		return err
	}
	p.open(address)
	at := atPublish
	if p.running.published++; p.running.published > 1 {
		at = atPublishNext
	}
	if err := p.enter(ctx, at); err != nil {
		return err
	}
	if p.now < p.brokerAway || p.strikes(publishLost) {
		return errBroker
	}
	// Who began before the end, and stands still since, cannot know that the stream has forgotten the call.
	p.broker.forgets(address.Run)
	if ended, forgot := p.broker.gone[subject]; forgot && p.running.activation().began > ended && !p.running.activation().hasFound(address) {
		p.violate("purged", "%s is published again, and its run ended at %.3f", subject, seconds(ended))
	}
	if err := p.broker.create(address, subject, event); err != nil {
		return err
	}
	p.pause(atPublished)
	if p.strikes(publishUnsure) {
		return errBroker
	}
	return nil
}

// open checks that a call is not published by who knows that its run has closed it.
func (p publisher) open(address wire.Address) {
	ref, ok := wire.ParseCallRef(address.Call.Call)
	e := p.running.activation().knows[address.Run]
	if address.Kind == wire.KindOut && ok && e != nil && !e.Head.Waits(ref.ID) {
		p.violate("closed", "call %s is published by who knows that entry %d has closed it", address.Call.Call, e.Rev)
	}
}

// Restore implements runner.Publisher. Nobody listens here but who would find the same event in the stream.
func (p publisher) Restore(ctx context.Context, subject string, event wire.Event) error {
	return p.Publish(ctx, subject, event)
}

// Published implements runner.Publisher.
func (p publisher) Published(ctx context.Context, subject string) (bool, error) {
	if err := p.enter(ctx, atLookUp); err != nil {
		return false, err
	}
	if p.now < p.brokerAway || p.strikes(publishLost) {
		return false, errBroker
	}
	address := mustParse(subject)
	p.broker.forgets(address.Run)
	_, found := p.broker.bySubject[subject]
	if found {
		p.running.activation().finds(address)
	}
	return found, nil
}

// Purged implements runner.Publisher.
func (p publisher) Purged(ctx context.Context) (int64, error) {
	if err := p.enter(ctx, atLookUp); err != nil {
		return 0, err
	}
	if p.now < p.brokerAway || p.strikes(publishLost) {
		return 0, errBroker
	}
	return p.broker.purged(), nil
}

// ArmTimer implements runner.Publisher.
func (p publisher) ArmTimer(ctx context.Context, agent string, run wire.RunKey, due int64) error {
	if err := p.enter(ctx, atArm); err != nil {
		return err
	}
	if p.now < p.brokerAway || p.strikes(publishLost) {
		return errBroker
	}
	p.broker.arm(subjects.Fire(agent, run), due)
	if p.log != nil {
		p.trace("armed   timer of %s for %.3f", p.name(run), seconds(due))
	}
	p.pause(atArmed)
	if p.strikes(publishUnsure) {
		return errBroker
	}
	return nil
}

// Wake implements runner.Publisher.
func (p publisher) Wake(_ string, run wire.RunKey) {
	for _, w := range p.workers {
		if !p.strikes(wakeLost) {
			w.woken(run)
		}
	}
}

// Live implements runner.Publisher. Nobody watches.
func (p publisher) Live(wire.Live) {}

// DeadLetter implements handler.DeadLetters.
func (p publisher) DeadLetter(ctx context.Context, d broker.Delivery, reason sdk.Code, detail string) error {
	if err := p.enter(ctx, atLetter); err != nil {
		return err
	}
	if p.now < p.brokerAway || p.strikes(publishLost) {
		return errBroker
	}
	p.trace("dead    %s %d: %s: %s", d.Stream(), d.Sequence(), reason, detail)
	if reason == sdk.CodeInternal {
		p.violate("corrupt", "%s %d: %s", d.Stream(), d.Sequence(), detail)
	}
	if reason == sdk.CodeMessageRefused {
		p.refused(d, detail)
	}
	if strings.Contains(detail, "taken up again") {
		p.overtaken(d.(*delivery).message, detail)
	}
	p.audit.DeadLettered(d.Stream(), d.Sequence(), reason)
	p.pause(atLettered)
	if p.strikes(publishUnsure) {
		return errBroker
	}
	return nil
}

// overtaken checks that what is to take up a run, and is refused because something else has since, did not come after that.
func (p publisher) overtaken(m *message, detail string) {
	for _, e := range slices.Backward(p.store.journals[mustParse(m.subject).Run].decoded) {
		if e.Kind != core.KindRetried && e.Kind != core.KindUndoAsked {
			continue
		}
		if m.stored > e.written {
			p.violate("dead letter", "%s %d is refused for entry %d, which was written before it came: %s", m.stream, m.sequence, e.Rev, detail)
		}
		return
	}
}

// refused checks that the run, as no failover can forget it, takes the message no more than the run that refused it did.
func (p publisher) refused(d broker.Delivery, detail string) {
	address, err := subjects.Parse(d.Subject())
	if err != nil {
		p.violate("dead letter", "subject %s: %v", d.Subject(), err)
		return
	}
	j := p.store.journals[address.Run]
	if j == nil || j.durable == 0 {
		p.violate("I10", "%s %d was refused by a run that is not durable: %s", d.Stream(), d.Sequence(), detail)
		return
	}
	head := j.decoded[j.durable-1].Head
	if head.Retry != nil {
		return // it may have been refused because the run had ended
	}
	for _, a := range p.agents[head.Agent] {
		if a.Core.Digest != head.Spec {
			continue
		}
		note := core.Note{ID: "another", Text: "hello"}
		_, err := core.Step(a.Core, head, core.Input{At: p.now, Rev: uint64(j.durable) + 1, Event: core.Steered{Note: note}})
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeMessageRefused}) {
			p.violate("I10", "%s %d was refused, and the run takes messages: %s", d.Stream(), d.Sequence(), detail)
		}
	}
}

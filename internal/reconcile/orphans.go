package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// orphans examines the calls that runs of a partition have on the broker. known are the partition's runs by token.
func (p *pass) orphans(ctx context.Context, x *listing, partition string, runs map[string]known) error {
	calls, err := x.of(ctx, wire.KindOut, partition)
	if err != nil {
		return err
	}
	for token, subjects := range calls {
		run := wire.RunKey{Partition: partition, Token: token}
		k, there := runs[token]
		if k.young && there || p.unsettled[run] {
			continue
		}
		if !there {
			if _, err := p.Store.Head(ctx, run); !errors.Is(err, runner.ErrNotFound) {
				if err != nil && ctx.Err() != nil {
					return ctx.Err()
				}
				continue // it has begun meanwhile, or nothing is known of it
			}
		}
		for _, subject := range subjects {
			p.report.Calls++
			address, err := p.subjects.Parse(subject)
			if err != nil || there && !k.orphan(address) {
				continue
			}
			if err := p.orphan(ctx, x, address, subject); err != nil {
				return err
			}
		}
	}
	return nil
}

// orphan reports whether the run has not made the call, as far as its last entry says. Of a live run, a call of a later
// step may yet be made again, with the same id; it is left alone until the run is there.
func (k known) orphan(call wire.Address) bool {
	ref, ok := wire.ParseCallRef(call.Call.Call)
	switch {
	case !ok:
		return false
	case k.status == core.StatusDone:
		return ref.Step > k.step
	}
	return ref.Step == k.step && k.round && !slices.Contains(k.calls, ref.ID)
}

// orphan tells the service of a call without a run that nobody waits, unless it knows or has answered.
func (p *pass) orphan(ctx context.Context, x *listing, call wire.Address, subject string) error {
	voids, err := x.runOf(ctx, wire.KindVoid, call.Run)
	if err != nil || slices.Contains(voids, p.subjects.Void(call.Call)) {
		return err
	}
	answers, err := x.runOf(ctx, wire.KindIn, call.Run)
	reply := p.subjects.Reply(call.Call)
	answered := func(subject string) bool { return subject == reply || strings.HasPrefix(subject, reply+".") } // by a principal
	if err != nil || slices.ContainsFunc(answers, answered) {
		return err
	}
	d, err := p.Conn.LastDelivery(ctx, streams.Out, subject)
	if err != nil || d == nil || p.young(d.Received()) {
		return err
	}
	ev, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		p.Logger.Debug("call cannot be read, by its service neither", "subject", subject, "error", err)
		return nil
	}
	if expired(ev, p.now) {
		return nil // its service has given it up
	}
	if err := p.right(ctx); err != nil {
		return err
	}
	return p.deal(ctx, Finding{Kind: CallOrphaned, Agent: ev.Agent, Run: ev.Subject, What: subject, Action: "voided"},
		func(ctx context.Context) error {
			void := outbox.Void(p.subjects, call.Call, ev)
			return p.Conn.Publish(ctx, void.Subject, void.Event)
		})
}

func expired(call wire.Event, now time.Time) bool {
	text, _ := call.Extensions[wire.ExpiryTime].(string)
	at, err := time.Parse(time.RFC3339, text)
	return err == nil && at.Before(now)
}

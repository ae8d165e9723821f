package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// awaiting waits for what becomes of one answer.
type awaiting struct {
	c     *Client
	call  Call
	event string
	live  chan wire.Live
	// decided is what the run made of the decision so far: of each call that it is on.
	decided []wire.Decided
	// letter has the reason when the answer became a dead letter; nil when the caller does not read those.
	letter <-chan string
	// missed has a token when something of the run may have been missed, or the connection is closed.
	missed chan struct{}
	stop   func()
}

// await listens before an answer is published, so that nothing is missed.
func (c *Client) await(call Call, event string, refusals func(string) (<-chan string, func())) (*awaiting, error) {
	w := &awaiting{c: c, call: call, event: event, live: make(chan wire.Live, 64), missed: make(chan struct{}, 1)}
	unsubscribe, err := c.conn.WatchLive(call.Run.Agent, call.Run.key(), func(l wire.Live) {
		select {
		case w.live <- l:
		default: // the run's history is asked in the end
		}
	}, func(error) { // where nothing is heard, the history is asked in the end
		select {
		case w.missed <- struct{}{}:
		default: // it is known already
		}
	})
	if err = coded(context.Background(), err); err != nil {
		return nil, fmt.Errorf("listen to run %s: %w", call.Run.Name, err)
	}
	forget := func() {}
	if refusals != nil {
		w.letter, forget = refusals(event)
	}
	w.stop = func() {
		forget()
		_ = unsubscribe() // the connection is gone, and the subscription with it
	}
	return w, nil
}

// wait returns as soon as the outcome is known, or when patience is at its end.
func (w *awaiting) wait(ctx context.Context) Outcome {
	ctx, cancel := context.WithTimeout(ctx, w.c.patience)
	defer cancel()
	for {
		select {
		case l := <-w.live:
			if o, ok := w.told(l); ok {
				return o
			}
		case why := <-w.letter:
			return Outcome{State: OutcomeRefused, Refused: why}
		case <-w.missed:
			if o, err := w.look(ctx); o.State != OutcomeSent || isClosed(err) {
				return o
			}
		case <-ctx.Done():
			o, _ := w.look(context.WithoutCancel(ctx)) // else nothing more is known than that the answer is stored
			return o
		}
	}
}

// told is what a milestone tells of the answer.
func (w *awaiting) told(l wire.Live) (Outcome, bool) {
	if decided, ok := DecidedIn(l); ok && decided.Decision.Event == w.event {
		w.decided = append(w.decided, decided)
		if decided.More {
			return Outcome{}, false
		}
		return outcomeOf(w.decided), true
	}
	call, event := answeredIn(l)
	switch {
	case call != w.call.Call, sdk.AsksPermission(w.call.Type):
		return Outcome{}, false
	case event != w.event: // somebody else's, or the end of the wait for one: ours comes too late
		return Outcome{State: OutcomeSent}, true
	}
	return Outcome{State: OutcomeCounted}, true
}

// answeredIn is the call, question or turn that a milestone tells the answer to, and the event that this was; none if there was no answer.
func answeredIn(l wire.Live) (call, event string) {
	var answered struct {
		Call     string `json:"call"`
		Question string `json:"question"`
		Event    string `json:"event"`
	}
	tells := l.Type == wire.MilestoneAnswer || l.Type == wire.MilestoneResult || l.Type == wire.MilestoneAnswered
	if !tells || json.Unmarshal(l.Data, &answered) != nil {
		return "", ""
	}
	return cmp.Or(answered.Question, answered.Call), answered.Event
}

// outcomeOf is what became of a decision by what became of it for each call that it is on: it counts where it counts for one.
func outcomeOf(decided []wire.Decided) Outcome {
	o := Outcome{State: OutcomeRefused}
	for _, d := range decided {
		o.Rest = d.Rest
		if d.Decision.Refused != "" {
			o.Refused = cmp.Or(o.Refused, d.Decision.Refused)
			continue
		}
		o.State = OutcomeCounted
		o.Allowed, o.Quorum = max(o.Allowed, d.Allowed), max(o.Quorum, d.Quorum)
		o.Queued, o.Undecided = o.Queued || d.Queued, max(o.Undecided, d.Undecided)
	}
	o.Open = o.State == OutcomeRefused || o.Quorum > 0 || o.Rest > 0
	return o
}

// look asks the run, when nothing was heard: live events are lossy. With an error, nothing more is known than that the answer is stored.
func (w *awaiting) look(ctx context.Context) (Outcome, error) {
	w.decided = nil
	for l, err := range w.c.History(ctx, w.call.Run, wire.Mark{}) {
		if err != nil {
			return Outcome{State: OutcomeSent}, err
		}
		if o, ok := w.told(l); ok {
			return o, nil
		}
	}
	return Outcome{State: OutcomeSent}, nil
}

// DecidedIn is the decision that a live event tells of, if it tells of one.
func DecidedIn(l wire.Live) (decided wire.Decided, ok bool) {
	if l.Type != wire.MilestoneDecided || json.Unmarshal(l.Data, &decided) != nil {
		return wire.Decided{}, false
	}
	return decided, true
}

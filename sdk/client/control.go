package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Cancel asks a run to end. It returns when the broker has stored the request; Wait returns when the run has ended, with
// sdk.CodeCancelled. A run that is done, or is not there, is not told: the request becomes a dead letter. Whoever started a run
// may cancel it, and an operator; for others the error is sdk.CodePermissionDenied.
func (c *Client) Cancel(ctx context.Context, run Run, reason string) error {
	who, err := c.cancelAs(ctx, run)
	if err != nil {
		return err
	}
	event := wire.Event{ID: newID("cancel"), Type: wire.TypeCancel}
	return c.control(ctx, wire.ControlCancel, run, who, event, map[string]string{dataReason: reason})
}

// cancelAs is the principal that the client cancels the run as, or calls of it.
func (c *Client) cancelAs(ctx context.Context, run Run) (string, error) {
	status, err := c.Status(ctx, run)
	switch {
	case err == nil:
		return status.CancelAs(c.as), nil
	case notYet(err):
		return c.as, nil
	}
	return "", err
}

// CancelCall gives up one open call of the model and waits a moment until that is so. Whoever was asked learns that nobody waits, the
// model is shown that the call was cancelled, and the run goes on. call is the call's id, or its place in the run (wire.CallPlace).
// cancelled is false when the call has another result, or when no worker has taken the request yet: it is stored, and one will. Who may
// cancel the run may cancel its calls. The error is sdk.CodeUnknownRun for a call that the run has not made.
func (c *Client) CancelCall(ctx context.Context, run Run, call, reason string) (cancelled bool, err error) {
	who, err := c.cancelAs(ctx, run)
	if err != nil {
		return false, err
	}
	id, at, err := c.findCall(ctx, run, call)
	if err != nil {
		return false, err
	}
	event := wire.Event{ID: newID("cancel-call"), Type: wire.TypeCancelCall}
	if err := c.control(ctx, wire.ControlCancelCall, run, who, event, map[string]string{"call": id, dataReason: reason}); err != nil {
		return false, err
	}
	_, _, err = c.until(ctx, run, request{wire.ControlCancelCall, who, event.ID}, func(wire.RunStatus) bool {
		for l, err := range c.History(ctx, run, at) {
			var told callTold
			if err == nil && l.Type == wire.MilestoneResult && json.Unmarshal(l.Data, &told) == nil && told.Call == id {
				cancelled = told.Kind == callCancelled
				return true
			}
		}
		return false
	})
	return cancelled, err
}

// callTold is what milestones tell of a call.
type callTold struct {
	Call string `json:"call"`
	Kind string `json:"kind"`
}

// callCancelled is the kind of a result that nobody waited for.
const callCancelled = "cancelled"

// findCall is the id of a call that the model asked for, by id or place, and where the run's history tells of it.
func (c *Client) findCall(ctx context.Context, run Run, call string) (id string, at wire.Mark, err error) {
	for l, err := range c.History(ctx, run, wire.Mark{}) {
		if err != nil {
			return "", at, err
		}
		var told callTold
		if l.Type != wire.MilestoneCall || json.Unmarshal(l.Data, &told) != nil {
			continue
		}
		if told.Call == call || wire.CallPlace(told.Call) == call {
			id, at = told.Call, wire.Mark{Revision: l.Revision, Index: l.Index}
		}
	}
	if id == "" {
		return "", at, sdk.Errorf(sdk.CodeUnknownRun, "run %s has made no call %q", run.Name, call)
	}
	return id, at, nil
}

// said is the data of a message into a run.
type said struct {
	Message string `json:"message"`
	Urgent  bool   `json:"urgent,omitempty"`
}

// Send sends a message into a run and waits a moment until the run has it. What becomes of it is up to the agent
// (sdk.SteeringPolicy). heard is false when no worker has taken it yet: it is stored, and one will. The error is why it was refused, where the
// client may read dead letters, as operators may.
func (c *Client) Send(ctx context.Context, run Run, text string) (heard bool, err error) {
	return c.send(ctx, run, text, false)
}

// SendUrgent is Send of a message that the model reads before those that wait and are not urgent.
func (c *Client) SendUrgent(ctx context.Context, run Run, text string) (heard bool, err error) {
	return c.send(ctx, run, text, true)
}

func (c *Client) send(ctx context.Context, run Run, text string, urgent bool) (heard bool, err error) {
	if text == "" || len(text) > wire.MaxMessage {
		return false, sdk.Errorf(sdk.CodeMessageRefused, "the message has %d bytes; it must have 1 to %d", len(text), wire.MaxMessage)
	}
	event := wire.Event{ID: newID("message"), Type: wire.TypeMessage}
	if err := c.control(ctx, wire.ControlMessage, run, c.as, event, said{text, urgent}); err != nil {
		return false, err
	}
	message := wire.MessageID(c.source, event.ID)
	_, heard, err = c.until(ctx, run, request{wire.ControlMessage, c.as, event.ID}, func(s wire.RunStatus) bool { return slices.Contains(s.Heard, message) })
	return heard, err
}

// Retry takes up a run that ended with an error, by a limit or by its deadline, from where it ended, and waits a moment until it goes on.
// It needs the right of an operator. The run that it returns is the new generation: Wait waits for that one's end. Who asks for the same
// end of a run to be retried twice gets one generation. taken is false when no worker has taken the run up yet: the request is
// stored, and one will, or refuse it later. The error is sdk.CodeRetryRefused for a run that cannot be retried, or why the request was refused.
func (c *Client) Retry(ctx context.Context, run Run) (generation Run, taken bool, err error) {
	status, err := c.Status(ctx, run)
	if err != nil {
		return Run{}, false, err
	}
	if refusal := status.CheckRetry(); refusal != nil {
		return Run{}, false, refusal
	}
	event := wire.Event{ID: "retry-" + wire.TerminalID(run.key(), status.Init), Type: wire.TypeRetry}
	return c.takeUp(ctx, wire.ControlRetry, run, status.Init, event, struct{}{})
}

// Undo has calls of a run that has ended undone, the newest first, and waits a moment until that has begun. calls are their ids, or
// places in the run (wire.CallPlace); none are as many as can be undone at once: see wire.RunStatus.Undoable. It needs the right of an
// operator. The run that it returns is the new generation: Wait waits for its end, which is the error sdk.CodeUndone, and says in
// wire.Problem.Undone what became of each call. Who asks for the same twice, of the same end of a run, gets one generation. taken is
// false when no worker has taken the run up yet: the request is stored, and one will, or refuse it later. The error is sdk.CodeUndoRefused when
// nothing can be undone, or why the request was refused.
func (c *Client) Undo(ctx context.Context, run Run, calls ...string) (generation Run, taken bool, err error) {
	status, err := c.Status(ctx, run)
	if err != nil {
		return Run{}, false, err
	}
	undoes, err := status.Undoes(calls)
	if err != nil {
		return Run{}, false, err
	}
	ids := make([]string, len(undoes))
	for i, u := range undoes {
		ids[i] = u.Call
	}
	slices.Sort(ids)
	id := "undo-" + wire.InitToken(wire.TerminalID(run.key(), status.Init), strings.Join(ids, " "))
	return c.takeUp(ctx, wire.ControlUndo, run, status.Init, wire.Event{ID: id, Type: wire.TypeUndo}, map[string][]string{"calls": ids})
}

// takeUp sends what begins the next generation of a run after that with the token init, and waits a moment until it has begun.
func (c *Client) takeUp(
	ctx context.Context, verb wire.ControlVerb, run Run, init string, ev wire.Event, data any,
) (generation Run, taken bool, err error) {
	if err := c.control(ctx, verb, run, c.as, ev, data); err != nil {
		return Run{}, false, err
	}
	generation = Run{Agent: run.Agent, Name: run.Name, Init: wire.InitToken(c.source, ev.ID)}
	now, taken, err := c.until(ctx, run, request{verb, c.as, ev.ID}, func(s wire.RunStatus) bool { return s.Init != init })
	if taken {
		generation.Init = now.Init // somebody else may have been first
	}
	return generation, taken, err
}

// Pause has a run make no more calls until it is resumed, and waits a moment until it heeds that. It needs the right of an operator.
// reason is for whoever looks at the run. heeded is false when no worker has handled the request yet: it is stored, and one will. The error is
// why it was refused, if it was.
func (c *Client) Pause(ctx context.Context, run Run, reason string) (heeded bool, err error) {
	return c.hold(ctx, run, wire.ControlPause, wire.TypePause, map[string]string{dataReason: reason}, func(s wire.RunStatus) bool { return s.Paused != nil })
}

// Resume has a paused run go on, and is otherwise like Pause.
func (c *Client) Resume(ctx context.Context, run Run) (heeded bool, err error) {
	return c.hold(ctx, run, wire.ControlResume, wire.TypeResume, map[string]string{}, func(s wire.RunStatus) bool { return s.Paused == nil })
}

// Unpark has a run that waits for its model ask it again at once, and is otherwise like Pause.
func (c *Client) Unpark(ctx context.Context, run Run) (heeded bool, err error) {
	before, err := c.Status(ctx, run)
	if err != nil && !notYet(err) {
		return false, err
	}
	seen := err == nil
	return c.hold(ctx, run, wire.ControlUnpark, wire.TypeUnpark, map[string]string{}, func(s wire.RunStatus) bool { return seen && s.Revision > before.Revision })
}

// Tag changes by which tags people find a run: a key with nil loses its tag, and what is not named stays. It is otherwise like Pause.
func (c *Client) Tag(ctx context.Context, run Run, tags map[string]*string) (heeded bool, err error) {
	given := map[string]string{}
	for key, value := range tags {
		if value != nil {
			given[key] = *value
		} else if err := wire.CheckTagKey(key); err != nil {
			return false, err
		}
	}
	if err := wire.CheckTags(given); err != nil {
		return false, err
	}
	event := wire.Event{ID: newID(string(wire.ControlTag)), Type: wire.TypeTag}
	if err := c.control(ctx, wire.ControlTag, run, "", event, map[string]any{wire.TagsAttribute: tags}); err != nil {
		return false, err
	}
	_, heeded, err = c.until(ctx, run, request{wire.ControlTag, "", event.ID}, func(s wire.RunStatus) bool {
		for key, value := range tags {
			if is, has := s.Tags[key]; has != (value != nil) || has && is != *value {
				return false
			}
		}
		return true
	})
	return heeded, err
}

// hold asks a run to wait or to go on, as an operator.
func (c *Client) hold(
	ctx context.Context, run Run, verb wire.ControlVerb, eventType string, data map[string]string, heeds func(wire.RunStatus) bool,
) (bool, error) {
	event := wire.Event{ID: newID(string(verb)), Type: eventType}
	if err := c.control(ctx, verb, run, "", event, data); err != nil {
		return false, err
	}
	_, heeded, err := c.until(ctx, run, request{verb, "", event.ID}, heeds)
	return heeded, err
}

// dataReason is the member of a control event's data that says why.
const dataReason = "reason"

// control publishes a control event with data.
func (c *Client) control(
	ctx context.Context, verb wire.ControlVerb, run Run, who string, event wire.Event, data any,
) (err error) {
	if event.Data, err = json.Marshal(data); err != nil {
		return fmt.Errorf("encode what run %s is told: %w", run.Name, err)
	}
	if err := run.check(); err != nil {
		return err
	}
	event.Source, event.Subject, event.Time = c.source, run.Name, time.Now()
	if err := coded(ctx, c.conn.Control(ctx, verb, run.Agent, run.key(), who, event)); err != nil {
		return fmt.Errorf("%s run %s: %w", verb, run.Name, err)
	}
	return nil
}

// ErrStored is in the errors of requests to a run whose context ended when they were stored, and before it was known what becomes of them. A worker
// handles them; who sends one again has sent two.
var ErrStored = errors.New("the request is stored, and nobody has waited for what becomes of it")

// request is a control message that was published.
type request struct {
	verb wire.ControlVerb
	// who it was published as, and its event's id.
	who, event string
}

// refuser is a Conn that can tell which control messages were refused, where its user may read dead letters.
type refuser interface {
	Refusal(ctx context.Context, verb wire.ControlVerb, agent string, run wire.RunKey, who, event string) (*sdk.Error, error)
}

// until asks for the run until it is as wanted, and reports whether it came to that in a moment. The error is why the request for it was
// refused, where that can be known.
func (c *Client) until(ctx context.Context, run Run, r request, wanted func(wire.RunStatus) bool) (wire.RunStatus, bool, error) {
	waiting, stop := context.WithTimeout(ctx, c.patience)
	defer stop()
	letters, looks := c.conn.(refuser)
	looks = looks && !c.blind.Load()
	for asked, look := 1, 4; ; asked++ {
		status, err := c.Status(waiting, run)
		switch {
		case err == nil && wanted(status):
			return status, true, nil
		case isClosed(err):
			return wire.RunStatus{}, false, err
		}
		over := retry.Sleep(waiting, 50*time.Millisecond) != nil
		if ctx.Err() != nil {
			return wire.RunStatus{}, false, fmt.Errorf("%w: %w", ErrStored, ctx.Err())
		}
		if looks && (over || asked >= look) {
			look *= 2
			why, err := letters.Refusal(ctx, r.verb, run.Agent, run.key(), r.who, r.event)
			if why != nil {
				return wire.RunStatus{}, false, why
			}
			if looks = err == nil; errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
				c.blind.Store(true)
			}
		}
		if over {
			return wire.RunStatus{}, false, nil // no worker has handled it yet, or it cannot be known that it was refused
		}
	}
}

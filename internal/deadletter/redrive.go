package deadletter

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Redrive publishes the message again, and then removes the letter: who is interrupted in between does it once more, which is
// harmless. It says what was done.
func (l *Letter) Redrive(ctx context.Context, conn *broker.Conn, store runner.Store) (done string, err error) {
	return l.RedriveFor(ctx, conn, store, "")
}

// RedriveFor is Redrive on behalf of somebody, or of a program: the mark of the dead letter names it.
func (l *Letter) RedriveFor(ctx context.Context, conn *broker.Conn, store runner.Store, by string) (done string, err error) {
	if err := l.Redrivable(ctx, store); err != nil {
		return "", err
	}
	stream, sequence, err := conn.Republish(ctx, l.Letter)
	if err != nil {
		return "", err
	}
	done = fmt.Sprintf("redriven on %s, as message %d of %s", l.Subject, sequence, stream)
	if by != "" {
		done += ", for " + by
	}
	return done, conn.SettleLetter(ctx, l.Letter, done)
}

// RunStatus says in words how the run is that the message is for, as far as that can be read.
func (l *Letter) RunStatus(ctx context.Context, store runner.Store) string {
	last, err := store.Head(ctx, l.Key)
	if errors.Is(err, runner.ErrNotFound) {
		return "unknown"
	}
	if err == nil {
		var entry core.Entry
		if entry, err = core.DecodeEntry(last.Data); err == nil {
			return show.StatusText(entry.Head.Status, entry.Head.Reason, "")
		}
	}
	return string(show.Unreadable)
}

// Redrivable returns nil when publishing the message again may come to more than the first time, else why not.
func (l *Letter) Redrivable(ctx context.Context, store runner.Store) error {
	refuse := func(format string, args ...any) error { return sdk.Errorf(sdk.CodeInvalidEvent, format, args...) }
	switch {
	case l.Forged:
		return refuse("%q is not a subject of %s, where the letter says that it came from: whoever wrote it wants this published as you", l.Subject, l.Stream)
	case l.Omitted:
		return refuse("its body was too large to be kept, and is gone from %s", l.Stream)
	case l.Reason == sdk.CodeConflict:
		return refuse("another event has its place on %s", l.Subject)
	}
	switch l.Address.Kind {
	case wire.KindStart, wire.KindIn, wire.KindCtl:
	case wire.KindOut, wire.KindVoid:
		return refuse("only workers publish calls; whoever made this one is told by its timeout, or tries again by itself")
	case wire.KindFire:
		return refuse("only timers are published there, by the broker")
	case "":
		return refuse("%q is not one of agentd's subjects", l.Subject)
	default:
		return refuse("only workers publish %s messages", l.Address.Kind)
	}
	if l.Undecodable != nil {
		return refuse("it still is not an event: %s; whoever published it must send it anew", show.Problem(l.Undecodable))
	}
	last, err := store.Head(ctx, l.Key)
	if errors.Is(err, runner.ErrNotFound) {
		if l.Address.Kind == wire.KindStart {
			return nil
		}
		return refuse("run %s does not exist", l.Run)
	}
	if err != nil && !errors.Is(err, runner.ErrCorrupt) {
		return err
	}
	var entry core.Entry
	if err == nil {
		entry, err = core.DecodeEntry(last.Data)
	}
	if err == nil && l.Reason == sdk.CodeCorrupt {
		_, err = runner.New(runner.Options{Store: store}).Journal(ctx, l.Key)
	}
	if err != nil {
		return refuse("the journal of run %s still cannot be read: %s", l.Run, err)
	}
	return l.useful(&entry.Head)
}

// useful returns nil when the run with that head can make something of the message, else why not.
func (l *Letter) useful(h *core.Head) error {
	refuse := func(format string, args ...any) error { return sdk.Errorf(sdk.CodeInvalidEvent, format, args...) }
	started := l.Address.Kind == wire.KindStart
	switch {
	case started && h.Init.Token != l.init():
		return refuse("another init event started run %s; send this one anew with another subject", h.Run)
	case h.RetriedBy(l.init()):
		return refuse("run %s was taken up by this message before, and a copy changes nothing; ask anew with: agentd runs %s %s", h.Run, l.Address.Verb, show.ShellQuote(h.Run))
	case l.Address.Verb == wire.ControlRetry:
		if refusal := h.CheckRetry(); refusal != nil {
			return refuse("run %s cannot be retried: %s", h.Run, refusal.Message)
		}
		return nil
	case l.Address.Verb == wire.ControlUndo:
		if refusal := h.CheckUndo(); refusal != nil {
			return refuse("calls of run %s cannot be undone: %s", h.Run, refusal.Message)
		}
		return nil
	case h.Status == core.StatusDone && h.CheckRetry() == nil:
		return refuse("run %s has ended (%s); it can be taken up with: agentd runs retry %s", h.Run, h.Termination(), show.ShellQuote(h.Run))
	case h.Status == core.StatusDone && started:
		return refuse("run %s has ended (%s), and its terminal event stands; send the init event anew with another subject", h.Run, h.Reason)
	case h.Status == core.StatusDone:
		return refuse("run %s has ended (%s)", h.Run, h.Reason)
	case h.Status == core.StatusRunning && h.Driver.Covers(core.Cause{Stream: l.Stream, Sequence: l.Origin}):
		return refuse("run %s stopped while it was driven under this message, which a copy cannot continue; end it with: agentd runs cancel %s",
			h.Run, show.ShellQuote(h.Run))
	case started:
		return refuse("run %s was started by this event, and is %s", h.Run, h.Status)
	case l.Address.Kind != wire.KindIn:
		return nil
	}
	ref, _ := wire.ParseCallRef(l.Address.Call.Call) // what is not a call is not open
	for _, call := range h.Calls {
		if call.Event() == ref.ID && !call.Closed() {
			return nil
		}
	}
	return refuse("run %s does not wait for call %s", h.Run, l.Address.Call.Call)
}

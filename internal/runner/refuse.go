package runner

import (
	"context"
	"fmt"

	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// foreign reports whether the message names another agent than the run's.
func (a *activation) foreign() bool {
	return a.head.Status != "" && wire.NameToken(a.head.Agent) != a.msg.Address.Agent
}

func (a *activation) refuseForeign(ctx context.Context) (Verdict, error) {
	if a.msg.starts() {
		return a.refuse(ctx, sdk.Errorf(sdk.CodeRunExists, "run %q belongs to another agent", a.msg.Run))
	}
	return a.refuse(ctx, sdk.Errorf(sdk.CodeUnknownRun, "the run belongs to another agent"))
}

// refuseUnread answers an init event that could not be decoded, for whoever sent it, and dead-letters it, for operators. One that has
// the identity of a run's init event, or retry, is not answered: the run's own end goes to the same place. Nor is one of an identity
// that is answered already.
func (a *activation) refuseUnread(ctx context.Context) (Verdict, error) {
	token := wire.InitToken(a.msg.Event.Source, a.msg.Event.ID)
	if a.head.Status != "" && (a.head.Init.Token == token || a.head.RetriedBy(token)) {
		return reject(a.msg.Unread), nil
	}
	init := core.NewInit(a.msg.Address, a.msg.Event)
	answered, err := a.Publisher.Published(ctx, outbox.TerminalSubject(a.Subjects, a.agent.Core.Name, a.key, &init))
	if err != nil {
		return Verdict{}, fmt.Errorf("look whether whoever sent an event that cannot be read is answered: %w", err)
	}
	if answered {
		return reject(a.msg.Unread), nil
	}
	return reject(a.msg.Unread), a.publishRefusal(ctx, a.msg.Unread)
}

// refuse settles a message that must not change anything. Whoever started something learns it by a terminal event;
// anything else is dead-lettered. What the message is refused for must last: if the store forgot it, another delivery of the
// message could move the run, which would then be driven by a message that is gone.
func (a *activation) refuse(ctx context.Context, problem *sdk.Error) (Verdict, error) {
	if a.at.Rev > 0 {
		if err := a.Store.Barrier(ctx, a.key, a.at.Version); err != nil {
			return Verdict{}, fmt.Errorf("confirm run %s before refusing: %w", a.key, err)
		}
	}
	if !a.msg.starts() && !a.msg.asks() {
		return reject(problem), nil
	}
	a.Logger.InfoContext(ctx, "event is refused", "agent", a.agent.Core.Name, "error", problem)
	return Verdict{}, a.publishRefusal(ctx, problem)
}

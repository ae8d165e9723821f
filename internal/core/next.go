package core

import (
	"cmp"
	"fmt"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Action is what the driver of a run has to do next: AskContext, MakePlan, RouteSteps, CallModel, RunTools, Review, BuildOutput, Undo, Park, End or Rest.
type Action interface{ action() }

// AskContext asks context providers, before the model is called; it is fed back as Inquired with ContextQuestion(state).
type AskContext struct{}

// CallModel asks the model, with Request(spec, state).
type CallModel struct{}

// RunTools runs inline tools, concurrently. Begin lists the at-most-once tools among them, which must be committed as
// begun (input Began) before they run. Lost are those that another activation began: their outcome is unknown and
// stays so. Judge are calls of services that were held and are allowed, or whose turn has come: they are ruled on once more, and those
// that may be made are fed back as Passed, the others with their results. So are those in Run and Begin that are CallResuming.
type RunTools struct {
	Run, Begin, Lost, Judge []Call
}

// BuildOutput builds the run's output from StopText(state) and feeds it back as Built.
type BuildOutput struct{}

// Review shows hooks the results of the last round, and lets messages into the conversation; it is fed back as Reviewed.
type Review struct{}

// Undo plans the call that undoes Call; it is fed back as Undoing.
type Undo struct{ Call wire.UndoCall }

// Park lets go of a run that was paused, or whose agent was; it is fed back as Parked with ParkPaused.
type Park struct{}

// End feeds back Ended with the ending.
type End struct{ Ending Ending }

// Rest means that there is nothing to drive.
type Rest struct{}

func (AskContext) action()  {}
func (MakePlan) action()    {}
func (RouteSteps) action()  {}
func (CallModel) action()   {}
func (RunTools) action()    {}
func (BuildOutput) action() {}
func (Review) action()      {}
func (Undo) action()        {}
func (Park) action()        {}
func (End) action()         {}
func (Rest) action()        {}

// Next says what the driver has to do at now (Unix milliseconds).
func Next(spec *Spec, head *Head, now int64) Action {
	switch {
	case head.Status != StatusRunning:
		return Rest{}
	case head.Cancel != nil:
		return End{*head.Cancel}
	case now >= head.Deadline:
		return End{DeadlinePassed()}
	case head.Paused != nil:
		return Finishing(head)
	case head.openInline():
		return inlineCalls(spec, head)
	case head.Review || len(head.Notes) > 0:
		return Review{}
	case len(head.Undo) > 0:
		return head.undoes()
	case head.stopping():
		return BuildOutput{}
	}
	if ending, stop := stopped(spec, head); stop {
		return End{ending}
	}
	if len(spec.dueContexts(head)) > 0 {
		return AskContext{}
	}
	if act := spec.nextPlanned(head); act != nil {
		return act
	}
	return CallModel{}
}

// doing says what the driver of a run was at, unless the run was to end.
func doing(spec *Spec, head *Head) string {
	h := *head
	h.Cancel, h.Paused = nil, nil
	switch act := Next(spec, &h, 0).(type) {
	case AskContext, MakePlan, RouteSteps, CallModel:
		return fmt.Sprintf("making model call %d", h.Turns+1)
	case RunTools:
		var names []string
		for _, calls := range [][]Call{act.Judge, act.Begin, act.Run, act.Lost} {
			for _, c := range calls {
				names = append(names, c.Tool)
			}
		}
		return "running " + strings.Join(names, ", ")
	case Review:
		return "showing results to hooks"
	case BuildOutput:
		return "building its output"
	case Undo:
		return "undoing " + act.Call.Tool
	default:
		return "ending it"
	}
}

func inlineCalls(spec *Spec, head *Head) RunTools {
	var a RunTools
	for _, c := range head.Calls {
		if !c.runnable() {
			continue
		}
		tool := spec.tool(c.Tool)
		switch {
		case c.awaitsRuling():
			a.Judge = append(a.Judge, c)
		case c.Status == CallRunning && c.Begun != head.Driver.Owner:
			a.Lost = append(a.Lost, c)
		case c.Status != CallRunning && tool != nil && tool.AtMostOnce:
			a.Begin = append(a.Begin, c)
		default:
			a.Run = append(a.Run, c)
		}
	}
	return a
}

// OutcomeUnknown is the result of an at-most-once tool that was interrupted.
func OutcomeUnknown(c Call) Result {
	return failure(c.ID, ResultInline, sdk.Errorf(sdk.CodeOutcomeUnknown,
		"%s was interrupted; whether it took effect is unknown, and it was not run again", c.Tool))
}

// Awaited is an effect that a run waits for. Rev is the revision of the entry that lists it in full; 0 says that the
// effect itself is all there is.
type Awaited struct {
	Rev uint64
	Effect
}

// Waits reports whether the run still waits for what the events of that name ask for. A call that the journal has closed is not made again:
// its service may have forgotten that it has answered.
func (h *Head) Waits(event string) bool {
	c := h.Answering(event)
	return c != nil && !c.Closed()
}

// Outstanding are the effects that head waits for: whoever finds them missing outside may carry them out again. Of a
// call it is the last attempt: those before were out before the next one was sent.
func Outstanding(head *Head) []Awaited {
	var effects []Awaited
	for i := range head.Calls {
		c := &head.Calls[i]
		if c.Awaited() && head.Answering(c.Event()) == c { // one event asks for several permission requests
			effects = append(effects, Awaited{cmp.Or(c.Sent, head.openedBy(c)), Effect{Kind: EffectCall, Call: c.Event()}})
		}
	}
	// Also while the run is driven: it suspends without arming the timer again, because the head says that it is armed.
	if head.Timer > 0 {
		effects = append(effects, Awaited{Effect: Effect{Kind: EffectTimer, Due: head.Timer}})
	}
	if head.Status == StatusDone && head.Purged == nil {
		effects = append(effects, Awaited{Effect: Effect{Kind: EffectTerminal}})
	}
	return effects
}

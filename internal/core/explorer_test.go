package core_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/sdk"
)

// explorer lets anything happen to a run: what should, and what must not have an effect.
type explorer struct {
	*oracle
	// accepted are inputs from outside that were accepted, sent the calls that were published.
	accepted []core.Input
	sent     []core.Effect
	// owners are the activations that have driven the run.
	owners []string
	// executed are the at-most-once tools that were run.
	executed map[string]bool
	policy   policy
}

// explore makes one random history, from the init event to the end of the run.
func explore(t *rapid.T) *explorer { return exploreOf(t, randomSpec(t)) }

func exploreOf(t *rapid.T, spec *core.Spec) *explorer {
	x := newExplorer(t, spec)
	x.policy = randomPolicy(t)
	x.rig.spec.NeedsRulings = len(x.policy) > 0
	if pick(t, 10, "early") == 0 {
		x.refuse(x.rig.deliver("early", core.CancelAsked{}), core.ErrOrphan)
	}
	begin := started("order 7", "hello")
	if x.pick(40, "fails") == 0 {
		begin.Fails = &core.Ending{Reason: core.ReasonError, Code: sdk.CodeInternal, Message: "a hook failed", Detail: "hook"}
	}
	x.accept(x.rig.deliver("init-1", begin))
	for n := pick(t, 61, "inputs"); n > 0 && x.rig.state.Status != core.StatusDone; n-- {
		x.anything()
	}
	x.finish()
	for x.retry() || x.undo() {
		for n := pick(t, 20, "inputs"); n > 0 && x.rig.state.Status != core.StatusDone; n-- {
			x.anything()
		}
		x.finish()
	}
	x.afterwards()
	x.history()
	return x
}

func newExplorer(t *rapid.T, spec *core.Spec) *explorer {
	return &explorer{oracle: newOracle(t, newRig(spec)), executed: map[string]bool{}}
}

func randomSpec(t *rapid.T) *core.Spec {
	spec := newSpec(
		service("lookup", 30*second), service("book", 5*minute, "airline", "back.up"), service("ask", 0, sdk.HumanDomain),
		inline("add", false), inline("charge", true), inline("finish", false),
	)
	for i := range spec.Tools {
		if pick(t, 6, "priority?") == 0 {
			spec.Tools[i].Priority = pick(t, 3, "priority") - 1
		}
	}
	if pick(t, 2, "retry") == 0 {
		spec.Tools[0].Retry = core.Retry{Attempts: 1 + pick(t, 3, "attempts"), Pause: second, Longest: 10 * second}
	}
	if pick(t, 2, "stop") == 0 {
		spec.StopOn = []string{"finish", "lookup"}
	}
	if pick(t, 2, "undo") == 0 {
		spec.Undo = undoneBy(map[string]string{"book": "lookup", "add": "charge", "charge": "book", "lookup": "add"})
	}
	spec.Converse = pick(t, 3, "converse") == 0
	if pick(t, 3, "plans") == 0 {
		spec.Planning = &core.Planning{Replans: pick(t, 3, "replans")}
	}
	if pick(t, 3, "control") == 0 {
		randomControl(t, spec)
	}
	switch pick(t, 6, "decisions") {
	case 0, 1:
		spec.Batch = true
	case 2, 3:
		spec.Continues = !spec.Sequential && spec.Planning == nil
	}
	spec.MaxTurns = 1 + pick(t, 12, "interactions")
	spec.RunDeadline = int64(1+pick(t, 60, "deadline")) * minute
	spec.TurnTimeout = int64(pick(t, 4, "turn")) * minute
	return spec
}

// accept lets something happen that must have an effect.
func (x *explorer) accept(in core.Input) {
	if err := x.step(in); err != nil {
		x.Fatalf("%T by %s: %v", in.Event, in.Owner, err)
	}
	e := &x.rig.entries[len(x.rig.entries)-1]
	for _, f := range e.Effects {
		if f.Kind == core.EffectCall {
			f.Opened = e.Rev
			x.sent = append(x.sent, f)
		}
	}
	if d := e.Head.Driver; d != nil && (len(x.owners) == 0 || x.owners[len(x.owners)-1] != d.Owner) {
		x.owners = append(x.owners, d.Owner)
	}
	if _, again := in.Event.(core.TakenOver); !isWork(in.Event) && !again && !x.undecided(in.Event) && !isControl(in.Event) {
		x.accepted = append(x.accepted, in)
	}
}

// refuse lets something happen that must not have an effect.
func (x *explorer) refuse(in core.Input, want error) {
	if err := x.step(in); !errors.Is(err, want) {
		x.Fatalf("%T by %s: %v, want %v", in.Event, in.Owner, err, want)
	}
}

func (x *explorer) pick(n int, what string) int { return pick(x.T, n, what) }

// pick is one of 0 to n-1, all about as likely: rapid's own integers prefer small ones, and histories would be short.
func pick(t *rapid.T, n int, what string) int {
	for n >= len(choices) {
		choices = append(choices, choice(len(choices)))
	}
	return choices[n].Draw(t, what)
}

var (
	coin    = rapid.Bool()
	choices []*rapid.Generator[int]
)

func choice(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) int {
		v := 0
		for range bits.Len(uint(n)) + 1 {
			v <<= 1
			if coin.Draw(t, "bit") {
				v++
			}
		}
		return v % n
	})
}

// anything is one random input.
func (x *explorer) anything() {
	r := x.rig
	// Rare, and so looked for: a call that was allowed, of a run that waits for decisions on others.
	resuming := slices.ContainsFunc(r.state.Calls, func(c core.Call) bool { return c.Status == core.CallResuming })
	if resuming && r.state.Status == core.StatusWaiting {
		switch x.pick(4, "resuming") {
		case 0:
			x.cancel()
			return
		case 1:
			x.steer()
			return
		default:
		}
	}
	switch k := x.pick(35, "input"); {
	case k < 18:
		x.progress()
	case k < 20:
		x.answer()
	case k < 22:
		x.wrongAnswer()
	case k < 24:
		x.duplicate()
	case k < 25:
		x.fire()
	case k < 26:
		x.refuse(r.deliver("fire", core.Fired{Now: r.now, Due: r.state.Timer + 1 + int64(x.pick(9, "off"))}), core.ErrStale)
	case k < 27:
		x.takeOver()
	case k < 28:
		x.formerOwner()
	case k < 29:
		x.illegal()
	case k < 30:
		x.release()
	case k < 31:
		x.steer()
	case k < 32:
		x.operate()
	case k < 33:
		x.cancelCall()
	case k < 34:
		r.now += []int64{1, 5 * second, 20 * second, 2 * minute}[x.pick(4, "time")]
	default:
		x.rarely()
	}
}

// rarely is what makes histories short.
func (x *explorer) rarely() {
	switch x.pick(9, "rarely") {
	case 0:
		x.cancel()
	case 1:
		x.crashLoop()
	case 2:
		x.cancel()
		x.crashLoop()
	}
}

// progress is what moves the run on: an answer, or the driver's next action, during which something else may happen.
func (x *explorer) progress() {
	if x.rig.state.Status == core.StatusWaiting {
		x.answer()
		x.wake()
		return
	}
	resuming := slices.ContainsFunc(x.rig.state.Calls, func(c core.Call) bool { return c.Status == core.CallResuming })
	if resuming && x.pick(8, "crash") == 0 {
		x.crashLoop()
		return
	}
	owner := x.rig.state.Driver.Owner // before anything ends the run
	ev := x.outcome()
	switch x.pick(64, "meanwhile") {
	case 10, 11, 12:
		x.steer()
	case 0, 1, 2, 3:
		x.answer()
	case 4, 5:
		x.fire()
	case 6, 7:
		x.takeOver()
	case 8:
		x.cancel()
	case 9:
		x.rig.now = max(x.rig.now, x.rig.state.Deadline)
		x.fire()
	case 13, 14:
		x.cancelCall()
	}
	if d := x.rig.state.Driver; d == nil || d.Owner != owner {
		x.refuse(x.rig.work(owner, ev), core.ErrFenced)
		return
	}
	x.accept(x.rig.work(owner, ev))
}

// outcome is what comes of the driver's next action.
func (x *explorer) outcome() core.Event {
	switch next := x.rig.next().(type) {
	case core.AskContext:
		return x.inquire()
	case core.RunTools:
		return x.tools(next)
	case core.BuildOutput:
		if x.pick(6, "too late") == 0 {
			x.rig.now = max(x.rig.now, x.rig.state.Deadline)
			x.fire()
		}
		return x.built()
	case core.Review:
		return x.review()
	case core.Undo:
		ev := x.rig.undoing(next)
		x.policy.rule(ev.Admission)
		return ev
	case core.Park:
		return core.Parked{Why: core.ParkPaused}
	case core.End:
		return core.Ended{Ending: next.Ending}
	}
	if x.pick(16, "away") == 0 {
		return x.parked()
	}
	if x.pick(60, "fails") == 0 {
		return core.Ended{Ending: core.Ending{Reason: core.ReasonError, Code: sdk.CodeModel, Message: "no"}}
	}
	switch next := x.rig.next().(type) {
	case core.MakePlan:
		return x.plan()
	case core.RouteSteps:
		return x.route(next.Steps)
	}
	return x.reply()
}

func (x *explorer) built() core.Built {
	if x.pick(4, "output") == 0 {
		return core.Built{Output: core.Output{Fault: "not like this"}}
	}
	return core.Built{Output: core.Output{Data: json.RawMessage(`{"done":true}`)}}
}

func (x *explorer) reply() core.Replied {
	if p := x.rig.state.Plan; p != nil && p.Phase == core.PhaseAnswer {
		return x.rig.replied([]string{"", `{"response":"yes"}`}[x.pick(2, "answer")])
	}
	texts := []string{"", "hello <there>", `{"response":"yes"}`}
	text := texts[x.pick(len(texts), "text")]
	if x.pick(6, "kind") == 0 {
		return x.rig.replied(text)
	}
	calls := make([]sdk.ToolRequest, 1+x.pick(4, "calls"))
	for i := range calls {
		calls[i] = x.request()
	}
	ev := x.rig.replied(text, calls...)
	x.policy.rule(ev.Admission)
	x.hooks(&ev)
	return ev
}

// request is a call as a model writes it.
func (x *explorer) request() sdk.ToolRequest {
	names := []string{"lookup", "book", "ask", "add", "charge", "finish", "lookup", "add", "nosuch"}
	arguments := []string{`{}`, ` { "n" : 1.0 }`, `{"n":2}`, `{"n":3,"m":[]}`, `{"bad":true}`, `{"n":`, "\xff"}
	return sdk.ToolRequest{
		Name: names[x.pick(len(names), "tool")], Arguments: arguments[x.pick(len(arguments)+3, "arguments")%len(arguments)],
	}
}

func (x *explorer) tools(next core.RunTools) core.Event {
	if len(next.Begin) > 0 {
		var ids []string
		for _, c := range next.Begin {
			ids = append(ids, c.ID)
		}
		return core.Began{Calls: ids}
	}
	var ev core.Returned
	if len(next.Judge) > 0 {
		return x.gated(next.Judge)
	}
	for _, c := range next.Run {
		x.execute(c)
		x.handed(c)
		if x.pick(5, "asks") == 0 {
			ev.Asks = append(ev.Asks, core.Ask{
				Call: c.ID, Data: json.RawMessage(`{"question":"sure?"}`), State: json.RawMessage(fmt.Sprintf(`{"for":%q}`, c.ID)),
			})
			continue
		}
		data := fmt.Sprintf(`{"returned":%q}`, c.ID)
		ev.Results = append(ev.Results, core.Result{
			Call: c.ID, Kind: core.ResultInline, Data: json.RawMessage(data), Error: x.pick(5, "tool fails") == 0,
		})
	}
	for _, c := range next.Lost {
		ev.Results = append(ev.Results, core.OutcomeUnknown(c))
	}
	return ev
}

// handed checks that a tool which asked, and only such a one, is handed its state with what became of its last question.
func (x *explorer) handed(c core.Call) {
	answer := x.rig.state.Answer(&c)
	if (answer != nil) != (c.Asked != "") {
		x.Fatalf("call %+v is handed %+v", c, answer)
	}
	if answer == nil {
		return
	}
	r, ok := x.results[c.Asked]
	if string(answer.State) != fmt.Sprintf(`{"for":%q}`, c.ID) || !ok || string(answer.Data) != string(r.Data) || answer.Failed != r.Error {
		x.Fatalf("call %+v is handed %+v; the result of its question is %+v", c, answer, r)
	}
}

// execute runs a tool, which may do so only once if its name is charge.
func (x *explorer) execute(c core.Call) {
	if c.Tool != "charge" {
		return
	}
	run := c.ID + c.Asked // after an answer it goes on, once more
	if x.executed[run] || c.Status != core.CallRunning || c.Begun != x.rig.state.Driver.Owner {
		x.Fatalf("%s runs call %+v, executed before: %t", x.rig.state.Driver.Owner, c, x.executed[run])
	}
	x.executed[run] = true
}

// open are the calls that an answer is awaited of.
func (x *explorer) open() []core.Effect {
	var open []core.Effect
	for _, f := range core.Outstanding(&x.rig.state.Head) {
		if f.Kind == core.EffectCall {
			open = append(open, x.rig.effect(f.Rev, f.Call))
		}
	}
	return open
}

// anAnswer is a good answer to one of the calls.
func (x *explorer) anAnswer(open []core.Effect) core.Answered {
	f := open[x.pick(len(open), "call")]
	data := fmt.Sprintf(`{"answer":%q}`, f.Call)
	if f.Type == sdk.TypeConversationTurn {
		data = fmt.Sprintf(`{"message":"go on","end":%t}`, x.pick(5, "end") == 0)
	}
	ev := x.rig.answer(f, x.pick(len(f.Lanes()), "domain"), data)
	ev.Error = x.pick(8, "error") == 0
	if f.Type == sdk.TypePermissionRequest {
		x.decide(f, &ev)
		return ev
	}
	for _, c := range x.rig.state.Calls {
		if c.ID == f.Call && c.RetryAt == 0 {
			ev.Retryable = x.pick(2, "retryable") == 0 // an error of this attempt was absorbed before otherwise
		}
	}
	if x.pick(3, "no parent") == 0 {
		ev.ParentID = ""
	}
	return ev
}

func (x *explorer) answer() {
	if open := x.open(); len(open) > 0 {
		ev := x.anAnswer(open)
		x.accept(x.rig.deliver(ev.EventID, ev))
	}
}

// finish lets nothing go wrong any more: the run must end.
func (x *explorer) finish() {
	for n := 0; x.rig.state.Status != core.StatusDone; n++ {
		if n > 100 {
			x.Fatalf("the run does not end: %+v", x.rig.state.Head)
		}
		switch {
		case x.rig.state.Status == core.StatusRunning:
			x.progress()
		case x.rig.state.Paused != nil:
			x.accept(x.rig.deliver("resume", core.ResumeAsked{Received: x.rig.now}))
		case x.pick(4, "silence") == 0:
			x.fire()
		default:
			x.answer()
			x.wake()
		}
	}
}

// afterwards lets things happen to a run that is done.
func (x *explorer) afterwards() {
	x.refuse(x.rig.deliver("cancel", core.CancelAsked{}), core.ErrStale)
	x.refuse(x.rig.deliver("cancel", core.CallCancelAsked{}), core.ErrStale)
	x.refuse(x.rig.deliver("late", steered("late")), &sdk.Error{Code: sdk.CodeMessageRefused})
	x.refuse(x.rig.deliver("fire", core.Fired{Now: x.rig.now}), core.ErrStale)
	for _, ev := range []core.Event{core.PauseAsked{}, core.ResumeAsked{}, core.Unparked{}, core.TagAsked{}} {
		x.refuse(x.rig.deliver("late", ev), core.ErrStale)
	}
	x.refuse(x.rig.input("zombie", x.rig.causes["w1"], core.TakenOver{}), core.ErrStale)
	x.refuse(x.rig.work(x.owners[len(x.owners)-1], x.anyWork()), core.ErrFenced)
	x.duplicate()
	x.wrongAnswer()
	if _, ok := x.rig.next().(core.Rest); !ok {
		x.Fatalf("a run that is done has something to do")
	}
}

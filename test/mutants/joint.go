package main

// joins is a test of entries that have an answer and the reply to it.
func joins(name string) test { return test{"internal/runner", "TestJoint_" + name} }

// heads is a test of when a run is read.
func heads(name string) test { return test{"internal/runner", "TestHead_" + name} }

// ofJoint are about answers that are written together with what a model replies to them.
var ofJoint = []mutant{
	{"an answer is acked before the entry with the reply to it is durable", around(act+"goOn", `
		if a.unwritten != nil {
			_, _ = original(ctx)
			return Verdict{}, nil
		}
		return original(ctx)`), simulator},
	{"a worker that was overtaken goes by what it had in hand", around(act+"drop", "a.overtaken = true"), joins("MessageMeanwhile")},
	{"what was overtaken is handed back as the run's own", around(act+"drop", "head := a.head\noriginal()\na.head = head"), joins("NobodyGoesOnFromWhatWasOvertaken")},
	{"a worker that is overtaken asks its model again and again", condition(act+"keep", "overtaken", "false"), simulator},
	{"a cancel that comes while a model works is lost", around(act+"join", `
		head := a.head
		if err := a.loadHead(ctx); err != nil {
			return false, err
		}
		a.head = head
		return original(ctx, event)`), joins("CancelledMeanwhile")},
	{"what a reply asks for leaves before the answer is durable", around(act+"join", `
		if _, replied := event.(core.Replied); replied && a.unwritten != nil {
			change, err := core.Step(a.agent.Core, a.state.Head, a.in(event))
			early := core.Entry{Rev: a.at.Rev + 1, Cause: a.msg.Cause, At: change.At, Change: change}
			if err == nil {
				err = a.carryOut(ctx, &early, change.Effects)
			}
			if err != nil {
				return false, err
			}
		}
		return original(ctx, event)`), joins("ReplyAtOnce")},
	{"an inline tool runs before the answer that it follows is durable", around(act+"join", `
		if ev, replied := event.(core.Replied); replied && a.unwritten != nil {
			for _, c := range ev.Reply.Calls {
				if tool, inline := a.agent.Inline[c.Name]; inline {
					_, _ = tool.Run(ctx, sdk.ToolCall{Run: a.state.Run, Tool: c.Name, Args: []byte(c.Arguments)})
				}
			}
		}
		return original(ctx, event)`), joins("ReplyAtOnce")},
	{"an answer waits for a model that takes long", around(act+"ask", "reply, err = guarded(call)\nreturn reply, err, nil"), joins("NotWithASlowReply")},
	{"workers die over an answer that nobody writes", condition(act+"keep", "Delivered", "false"), joins("NotWhereMoreFollows")},
	{"hooks are shown what is not durable", condition(act+"keep", "Phases", "false"), joins("NotWhereMoreFollows")},
	{"who watches hears of an answer when a model has replied", condition(act+"keep", "watched", "false"), joins("NotWhereMoreFollows")},
	{"a large answer is in one entry with a reply", condition(act+"keep", "mostJoined", "false"), joins("NotWhereMoreFollows")},
	{"a timer overtakes an answer", condition(act+"keep", "Timer", "false"), joins("NotWhenATimerIsDue")},
	{"grants are used for what is not durable", condition(act+"accept", "NeedsRulings", "false"), joins("NotBeforeARuling")},
	{"a worker that ends takes a run that it does not drive", condition(act+"handBack", "unwritten", "true"), joins("Drained")},
	{"what an answer brings about waits for a model", condition(core+"Change.Joinable", "Effects", "true"), test{"internal/core", "TestJoinable_LeavesWhatOthersWaitFor"}},
	{"whoever decides waits for a model", condition(core+"Change.Joinable", "Decisions", "true"), test{"internal/core", "TestJoinable_LeavesWhatOthersWaitFor"}},
	{"a run with a joint entry forgets its layout", statement(core+"Change.After", "layoutJoint", "c.Head.V = layoutJoint"), test{"internal/core", "TestJoint_KeepsALaterLayout"}},
	{"older workers take runs with joint entries", statement(core+"Change.After", "layoutJoint", ""), test{"internal/core", "TestJoint_IsWhatTwoEntriesAre"}},
	{"what was absorbed is not told", around("internal/milestone.Of", "own := *e\nown.Absorbed = nil\nreturn original(&own)"), test{"internal/core", "TestJoint_IsWhatTwoEntriesAre"}},
	{"calls that a joint entry answers cannot be undone", around(core+"UndoStack.Add", "s.add(e)"), test{"internal/core", "TestJoint_IsWhatTwoEntriesAre"}},
	{"an answer that comes at once reads its run's journal", statement(act+"carryOutOwn", "leaveState", ""), test{"internal/runner", "TestState_IsThereForAnAnswerThatComesAtOnce"}},
	{"no more than a run's head is left to who drives it next", condition(act+"leaveState", "left Status", "a.state.Status == core.StatusRunning"), simulator},
	{"who has left a run looks at what has become of it", around(act+"leaveState", `
		was, left := a.state, a.left
		original()
		if a.left && !left {
			time.Sleep(time.Microsecond)
			a.state.Head = was.Head
		}`), test{"internal/runner", "TestLeaveState_LooksAtNothingThatItHasLeft"}},
	{"runs that have ended push out those that wait", condition("internal/runner.recent.wrote", "StatusDone", "false"), test{"internal/runner", "TestRecent_ForgetsRunsThatEnd"}},
	{"a run that begins is looked for in the store", condition(act+"recall", "Backlog", "true"), heads("IsNotReadForWhatIsNew")},
	{"an init event that may have been refused begins a run", condition(act+"recall", "Backlog", "false"), heads("IsNotReadForWhatIsNew")},
	{"a second init event is taken for a first one again and again", condition(act+"recall", "Backlog known", "!a.msg.Backlog"), heads("IsReadForASecondInit")},
	{"a run that begins without a look has another trace than its init event", around(act+"foresee", `
		change, ok = original(ctx)
		if ok && change.Kind == core.KindStarted {
			change.Head.Init.TraceParent = a.msg.Event.TraceParent
		}
		return change, ok`), test{"internal/telemetry", "TestTrace_BeginsWithTheRunWhereTheInitEventHasNone"}},
	{"hooks see a run begin that is there", condition(act+"foresee", "Phases", "false"), heads("IsReadForASecondInit")},
}

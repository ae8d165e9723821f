package main

import "slices"

// mutant is one thing that agentd must never do.
type mutant struct {
	name string
	change
	by killer
}

// Where most of what is broken here stands.
const (
	act      = "internal/runner.activation."
	step     = "internal/core.transition."
	core     = "internal/core."
	outbox   = "internal/outbox."
	policies = "internal/approval."
	told     = "internal/milestone.teller."
	runs     = "internal/runner."
	handler  = "internal/handler.Handler."
)

// mutants are all of them.
var mutants = slices.Concat(ofRuns, ofRows, ofWords, ofPlans, ofRights, ofWatching, ofConsole, ofModels, ofRetention, ofServers, ofJoint, ofPartitions, ofArchives, ofReplicas, ofSecrets)

// ofRuns are noticed by the simulator.
var ofRuns = []mutant{
	// Effects come after the entry, and are carried out again until they are out (R1, R2, R3).
	{"publish before commit", around(act+"appendEntry", `
		early := core.Entry{Rev: at.Rev + 1, Cause: a.msg.Cause, At: change.At, Change: change}
		if err := a.carryOut(ctx, &early, change.Effects); err != nil {
			return nil, point{}, err
		}
		return original(ctx, at, change)`), simulator},
	{"ack before the work", around(handler+"Handle", "h.settle(ctx, d, runner.Verdict{})\noriginal(ctx, d)"), simulator},
	{"a lost answer of the store is taken for a yes", call(act+"appendEntry", "Append", `func() (Version, error) {
		v, err := $
		if errors.Is(err, ErrAmbiguous) {
			return next.Version, nil
		}
		return v, err
	}()`), simulator},
	{"failed effects are passed over", around(act+"carryOutBy", "_ = original(ctx, put, e, effects)\nreturn nil"), simulator},
	{
		"calls of a turn are made in any order",
		around(act+"carryOutBy", "reversed := slices.Clone(effects)\nslices.Reverse(reversed)\nreturn original(ctx, put, e, reversed)"),
		test{"test/pipeline", "TestRun_CallsOfATurnAreInTheModelsOrder"},
	},
	{"effects of a duplicate are not carried out again", around(act+"relay", "return original(ctx)"), simulator},
	{"effects of a dead driver are not carried out again", condition(act+"absorbed", "drives Covers", "false"), simulator},
	{"a relay republishes the void of a purged call", around(act+"unpurged", "return effects, nil"), test{"internal/reconcile", "TestRelay_PublishesNoVoidOfACallThatIsGone"}},
	{"a relay republishes a closed call", around(runs+"unclosed", "return effects"), simulator},
	{
		"a driver makes a call that the end of its run has closed before the run was taken up",
		call(act+"commit", "waited appended", "a.state.Waits"),
		test{"internal/runner", "TestCommit_MakesNoCallThatAnEndHasClosed"},
	},
	{"what the run waits for is not carried out again", around(core+"Outstanding", "return nil"), simulator},
	{"an entry keeps what services are asked, however large that is", around(runs+"sections", "return original(e)[:1]"), test{"internal/runner", "TestEntry_IsStoredInParts"}},
	{"older workers take runs whose questions are beside the journal", statement(core+"Entry.PutBeside", "layoutBeside", ""), test{"internal/runner", "TestEntry_IsStoredInParts"}},
	{"what is too large to be stored is done again", condition(act+"commit", "tooLarge ending", "false"), test{"internal/runner", "TestEntry_ThatIsTooLargeEndsTheRun"}},
	{"a decision on several calls is lost on a toolset that is away", condition(core+"Head.Asks", "request Event", "false"), test{"test/pipeline", "TestToolset_ThatIsAwayLosesNothingThatWasDecided"}},
	{"a decision of those asked next is lost on a toolset that is away", statement(act+"lets", "answered ParseCallRef", "answered, ok := wire.CallRef{ID: a.msg.Address.Call.Call}, true"), test{"test/pipeline", "TestToolset_ThatIsAwayLosesNothingThatWasDecided"}},
	{"whatever is decided waits for a toolset that is away", around(core+"Head.Lets", "return true"), test{"internal/runner", "TestAwaited_HoldsBackWhatMakesTheCallOnly"}},
	{"a decision waits for a toolset until it comes too late", condition(act+"lets", "request Due", "a.Env.Now() >= cmp.Or(request.Due, a.head.Deadline)"), test{"internal/runner", "TestAwaited_HoldsBackWhatMakesTheCallOnly"}},
	{"a message for nobody is acked without a dead letter", call(act+"unmatched", "refuse orphan", ""), simulator},
	{"a dead letter is acked before it is put", call(handler+"settle", "DeadLetter", "func() error { _ = $; return nil }()"), simulator},
	{"whatever comes for a run that has ended is acked", around(act+"firedAfterEnd", "return a.head.Status == core.StatusDone"), simulator},
	{"a timer that fires as its run ends is the cause of nothing", condition(act+"firedAfterEnd", "since Received", "a.msg.Delivered == 1"), simulator},
	{"a drained worker acks what it leaves", value(act+"handBack", "Settlement Retry", "Ack"), simulator},

	// Calls may be open while a run goes on: the result of each is told once, and before the run completes (I8, I11).
	{"a result that comes late is told twice", around(core+"Head.note", "m := original(id)\nm.Content = append(m.Content, m.Content...)\nreturn m"), simulator},
	{"a result that comes late is lost", around(step+"tellLater", ""), simulator},
	{"a run completes while its calls are open", condition(step+"replied", "openAny empty Converse", "false"), simulator},
	{"a carried call is forgotten", around(core+"Head.live", "return nil"), simulator},
	{"what is due of a carried call is not watched", around(step+"watchCarried", ""), simulator},

	// What a judge objects to is sent back before it is taken for an answer (I2).
	{"what judges object to is an answer", around(step+"object", "return false, nil"), simulator},

	// A run that has ended is taken up by a retry alone, and each of its generations has an end of its own (I1, I2, I7).
	{"a cancelled run is retried", around(core+"Head.CheckRetry", `
		if h.Status == StatusDone && h.Reason == ReasonCancelled {
			return nil
		}
		return original()`), simulator},
	{"a retried run calls again what has a result", around(step+"takeUp", `
		original(left)
		for i := range t.Head.Calls {
			if c := &t.Head.Calls[i]; c.Kind == CallService && c.Status == CallSucceeded {
				c.Status = CallSuspended
				t.calls = cloneCalls(t.Head.Calls)
				t.repeat(c)
			}
		}`), test{"internal/core", "TestRetried_TakesUpWhereTheRunEnded"}},
	{"the terminal of the second generation has the first one's id", around(core+"Head.Generation", "return h.Init"), simulator},

	// What was read is durable, and not of another history, before anything follows from it (R1, R4).
	{"no barrier before a duplicate is acked", call(act+"repeat", "Barrier", ""), simulator},
	{"no barrier before a message is refused", call(act+"refuse", "Barrier", ""), simulator},
	{"a step that was found written is not confirmed", call(act+"commit", "confirm", ""), histories(100_000)},
	{
		"effects of entries that are not durable",
		around(act+"durable", "entries, _, err := a.journal(ctx, point{}, a.at.Rev)\nreturn entries, err"), simulator,
	},
	{"effects of a history that was forgotten", condition(act+"durable", "Etag", "true"), histories(5000)},
	{"a message is refused for what may be forgotten", condition(act+"refuse", "Rev", "$ && a.msg.starts()"), simulator},
	{"the head is read as a journal is: it may be old", call(act+"loadHead", "Head", `func() (Record, error) {
		recs, err := a.Store.Entries(ctx, a.key, Version{})
		if err != nil {
			return Record{}, err
		}
		if len(recs) == 0 {
			return Record{}, ErrNotFound
		}
		return recs[len(recs)-1], nil
	}()`), simulator},
	{"etags are numbers", call(act+"appendEntry", "Random", "fmt.Sprint(at.Rev + 1)"), simulator},
	{"a driver does not notice that its entry was forgotten", condition(act+"catchUp", "rec Etag at -entries", "false"), simulator},
	{"entries need not follow each other", condition(runs+"Runner.follow", "Rev Prev", "false"), histories(100_000)},
	{"a driver does not find its own entry", condition(act+"commit", "appended Etag", "true"), simulator},
	{"a cached state is of any history", condition(act+"loadState", "former Etag", "true"), simulator},
	{"a journal may be read without its end", condition(act+"journal", "end rev", "len(entries) > 0"), simulator},

	// One driver (R5).
	{"no fence check", condition(step+"driven", "Owner", "false"), simulator},
	{"a new driver has the old fence", around(step+"take", "fence := max(t.Head.Fence, 1)\noriginal()\nt.Head.Fence = fence"), simulator},
	{"who lost the run acks", value(act+"stopped", "Settlement Leave", "Ack"), simulator},
	{"an answer takes the run from its driver", around(step+"settle", `
		err := original()
		if t.was == StatusRunning && t.Head.Status == StatusRunning {
			t.take()
		}
		return err`), simulator},
	{"a redelivered driving message is a duplicate", around(act+"covered", "return false"), simulator},
	{"workers die on a run for ever", condition(step+"takeFrom", "MaxDeaths", "false"), simulator},
	{"who takes a run from itself has died", condition(step+"takeFrom", "former Owner in", "true"), test{"internal/core", "TestTakenOver_FromItselfCountsNothing"}},
	{"a run is taken back from who took it since", around(act+"displaced", "return false, nil"), test{"internal/runner", "TestAttempt_LeavesTheRunToWhoTookItSince"}},
	{"a run that may kill its worker is driven beside others", condition(act+"suspect", "Suspect", "false"), simulator},
	{"others come in to a run that is driven alone", condition(runs+"Isolation.admit", "g nil", "false"), simulator},
	{"a run is said to be driven alone before others have left", condition(runs+"Isolation.admit", "g inside", "false"), simulator},
	{"who is let in is not called", condition(runs+"Isolation.admit", "next call", "false"), test{"internal/runner", "TestIsolation_WhoIsLetInIsCalled"}},
	{"a run is held back for as long each time", around(act+"spread", "a.msg.Delivered = 1\nreturn original(n)"), test{"internal/runner", "TestHoldBack_IsAnotherOneAtEachDelivery"}},
	{"each step reads the run's whole history", around(runs+"cache.take", "return cached{}, false"), test{"internal/runner", "TestStep_AllocatesNoMoreWhereTheHistoryIsLong"}},
	{"runs that have ended stay in memory", condition(runs+"cache.put", "StatusDone", "false"), test{"internal/runner", "TestCache_KeepsRunsThatWait"}},
	{"runs that wait for people make others leave", condition(runs+"cache.put", "AwaitsService", "true"), test{"internal/runner", "TestCache_RunsThatWaitForPeopleMakeNoOthersLeave"}},
	{"people count as services that answer soon", condition(core+"Head.AwaitsService", "HumanDomain", "true"), test{"internal/runner", "TestCache_RunsThatWaitForPeopleMakeNoOthersLeave"}},
	{"calls that were not made count as made", condition(core+"Call.WithService", "Queued", "true"), test{"internal/runner", "TestCache_RunsThatWaitForPeopleMakeNoOthersLeave"}},
	{"pages that were written are given back", condition("cmd/agentd/internal/cli.ReleaseProgram", "m own", "false"), test{"cmd/agentd/internal/cli", "TestReleaseProgram_TakesItsFileOutOfMemory"}},
	{"runs that wait take any memory", condition(runs+"cache.put", "used limit", "false"), test{"internal/runner", "TestCache_KeepsRunsThatWait"}},
	{"who is held back keeps others from being alone", statement(act+"holdBack", "Isolation leave", ""), test{"internal/runner", "TestHoldBack_KeepsNobodyWaiting"}},
	{
		"a control message counts that was refused for want of its run",
		around(act+"ahead", `return original() && a.head.Status == ""`), histories(100_000),
	},
	{
		"a message takes a run for which it may have been refused while a store forgot it",
		around(act+"outwaited", "return false"),
		test{"internal/runner", "TestMessage_ThatMayHaveBeenRefusedTakesNoRun"},
	},
	{
		"a message is refused for its age while another delivery of it may have the run hear it",
		condition(act+"takesAgain", "StatusRunning waitForRun", "a.head.Status == core.StatusRunning"),
		test{"internal/runner", "TestMessage_ThatMayHaveBeenRefusedWakesNoRun"},
	},
	{
		"a retry that waited for long is refused, though the run had ended when it came",
		condition(act+"takesAgain", "outwaited StatusDone", "again || !a.outwaited()"),
		test{"internal/runner", "TestRetry_ThatWaitedForLongTakesUpWhatHadEnded"},
	},
	{
		"what workers refuse is said to be requested", around("internal/broker.Conn.Refusal", "return nil, nil"),
		test{"sdk/client", "TestClient_IsToldWhyARequestIsRefused"},
	},
	{
		"a run that ended otherwise is said to be cancelled", condition("cmd/agentd/runs.notCancelled", "failed Code", "failed"),
		test{"cmd/agentd/runs", "TestCancel_OfARunThatEndedOtherwise"},
	},
	{"a run is taken up by a message that was refused at the end before", around(act+"takenUpSince", "return false"), test{"internal/runner", "TestRetry_IsForTheEndBeforeIt"}},
	{"a control message does not wait for its run", condition(act+"withoutRun", "missing Now", "false"), histories(100_000)},

	// One result for each call, one end for each run.
	{"a later answer overwrites the result", condition(step+"answered", "Closed", "false"), simulator},
	{"an answer counts wherever it comes from", around(core+"Head.expects", "return true"), simulator},
	{"only the last attempt may be answered", condition(core+"Head.expects", "Attempt attempt", "ev.Ref.Attempt != c.attempt()"), simulator},
	{"all attempts at a call are one event", value(step+"resend", "Attempt RetryAt", "c.attempt()"), simulator},
	{"every attempt at an agent starts a run", call(core+"NewInit", "InitToken ref", `wire.InitToken("", call.Call)`), simulator},
	{"call ids do not cover the content", around("sdk/wire.CallID", "return original(run, initToken, step, index, tool, nil)"), simulator},
	{"the terminal id depends on the time", call(outbox+"end", "TerminalID", "$ + fmt.Sprint(ev.Time.UnixMilli())"), simulator},
	{
		"events carry the time when they are published",
		around(act+"publishCall", "late := *e\nlate.At = a.Env.Now()\nreturn original(ctx, put, &late, f)"), simulator,
	},
	{"a second init event restarts the run", condition(step+"start", "Status", "t.Head.Status == StatusRunning"), simulator},
	{"a child answers to nobody", around(outbox+"TerminalSubject", "return s.Done(agent, run, init.Token)"), simulator},
	{"who was asked in vain is not told", around(step+"void", ""), simulator},

	// Tools.
	{"an at-most-once tool is run by any driver", condition(core+"inlineCalls", "Begun", "false"), simulator},
	{"an at-most-once tool is not marked", condition(core+"inlineCalls", "AtMostOnce", "false"), simulator},

	// Time.
	{"a worker goes by its own clock", around("internal/clock.Clock.Broker", "return own"), simulator},
	{
		"a worker dates what it writes later than the broker", around("internal/clock.Clock.Measured", "original(asked, broker, asked+(answered-asked)/2)"),
		test{"test/pipeline", "TestClock_ASlowMeasurementDatesNothingLater"},
	},
	{"a timer fires without being due", condition(step+"fired", "Due Now", "false"), simulator},
	{"the run's timer is not armed", around(step+"arm", "effects := t.Effects\noriginal(due)\nt.Effects = effects"), simulator},
	{"a timer that fired counts as armed", statement(step+"fired", "Timer", ""), simulator},
	{"an earlier timer is not armed", condition(step+"arm", "due Timer", "false"), simulator},

	// Runs that wait for their model, or that an operator has paused.
	{"a parked run makes a model call", condition(step+"settle", "StatusWaiting Held", "false"), simulator},
	{"answers are lost while a run is parked", around(step+"answered", `
		if t.Head.Status == StatusWaiting && t.Head.Held() {
			return ErrStale
		}
		return original(ev)`), simulator},
	{"an unpark is heard and lost", around(step+"unparked", "if !t.heed(ev.Received) {\nreturn ErrStale\n}\nreturn nil"), simulator},
	{"an unpark that finds nothing to do is not noted", around(step+"unparked", `
		if p := t.Head.Parked; p == nil || p.Until == 0 {
			return ErrStale
		}
		return original(ev)`), simulator},
	{"a control message counts each time it is delivered", around(step+"heed", "t.Head.Heeded = nil\nreturn original(received)"), simulator},
	{"whoever drives a run does not see that it is paused", condition(core+"Next", "Paused", "false"), simulator},
	{"a run that waited for its planner keeps its mark", around(step+"unpark", "if _, planned := t.in.Event.(Planned); planned {\nt.Head.Parked = nil\nreturn\n}\noriginal()"), test{"internal/core", "TestPlan_TakesItsMarkBack"}},
	{"a run that waited for its router keeps its mark", around(step+"unpark", "if _, routed := t.in.Event.(Routed); routed {\nt.Head.Parked = nil\nreturn\n}\noriginal()"), test{"internal/core", "TestPlan_TakesItsMarkBack"}},
	{"a run ends while agents keep its last tokens", around(step+"waitsForTokens", "return false"), test{"internal/core", "TestTokens_KeptForAgentsComeBack"}},
	{"a reply that is no round ends a run whose agents keep tokens", condition(step+"driven", "waitsForTokens", "false"), test{"internal/core", "TestTokens_KeptForAgentsComeBackAfterEveryModelCall"}},
	{"a run waits for an agent that waits for it", condition(step+"waitsForTokens", "Answered", "true"), test{"internal/core", "TestTokens_KeptForOthersThanWhoAsked"}},
	{"who offers wider scopes alone cannot be denied", around(core+"PermissionState.scopes", "return g.Scopes"), test{"internal/core", "TestDecision_OnTheOneCallCountsWhateverIsOffered"}},
	{"a tool works on for a run that another worker has ended", condition(act+"absorbed", "StatusDone -driver", "false"), test{"internal/runner", "TestWake_StopsWhatIsAtWorkForARunThatAnotherWorkerEnded"}},
	{"a summariser is asked for as long as there is something to summarise", condition(act+"compact", "until", "false"), test{"internal/runner", "TestCompact_EndsBeforeItsDriverIsTakenForDead"}},
	{"a run keeps no tokens to answer the agents that it calls", around(core+"Admission.part", "return original(&Spec{}, head)"), test{"internal/core", "TestTokens_AreLeftToAnswerAnAgent"}},
	{"a run outlives its deadline for a toolset that is away", condition(act+"awaited", "Now Deadline", "false"), test{"internal/runner", "TestAwaited_EndsAtTheDeadline"}},
	{"a budget that cannot be read is none", condition(runs+"budget", "ok n", "false"), test{"test/pipeline", "TestBudget_IsWhatTheInitEventSays"}},
	{"a model is told of the calls before its run was taken up", around(core+"Spec.Interactions", "return sdk.Interactions{Current: h.Turns, Max: s.MaxTurns, Exhausted: h.Turns+1 >= s.MaxTurns}"), test{"internal/runner", "TestInteractions_CountAnewWhenTheRunIsTakenUp"}},
	{"a parked run is not tried at its time", around(core+"Head.triedAt", "return h.Deadline"), simulator},
	{"who works for a call that was cancelled meanwhile breaks down", around(core+"Head.outrun", "return false"), simulator},
	{"the runs of a paused agent go on", around(act+"next", "_ = original(ctx)\nreturn core.Next(a.agent.Core, &a.state.Head, a.Env.Now())"), simulator},
	{"a resume ends what the run waits for beside", around(step+"resumeAsked", "t.Head.Parked = nil\nreturn original(ev)"), simulator},

	// Messages into a run, questions of tools, summaries.
	{"a message that comes twice is heard twice", condition(step+"steered", "Heard note", "false"), simulator},
	{
		"messages are dropped when the model could be told",
		call(step+"reviewed", "flushNotes", "func() { h.Notes, h.Urgent = nil, false }()"), simulator,
	},
	{"a run that ends keeps messages to itself", call(step+"end", "flushNotes", "func() { h.Notes = nil }()"), simulator},
	{"who is not waited for because of a message or a cancel is not told", call(step+"withdraw", "void", ""), simulator},
	{"a tool is not handed what it kept with its question", value(core+"State.Answer", "State", "nil"), simulator},
	{"a question that nobody answers leaves its call alone", condition(step+"settleQuestion", "CallSuspended", "false"), simulator},
	{
		"an at-most-once tool that asked is not marked again",
		condition(core+"inlineCalls", "CallRunning AtMostOnce", "$ && c.Status == CallNew"), simulator,
	},
	{"a sequential round makes all its calls", around(step+"begin", `
		original(c, tool)
		if t.spec.Sequential && tool.Kind == CallService {
			t.send(c, tool)
		}`), simulator},
	{"what is to be made together is never made", condition(step+"awaitsDecisions", "open", "true"), simulator},

	// Permissions.
	{"what could not be checked is allowed", value(act+"rule", "Verdict", "core.VerdictAllow"), simulator},
	{"what the policy denies is allowed", around(core+"Admission.Rule", `
		if r.Verdict == VerdictDeny {
			r.Verdict = VerdictAllow
		}
		return original(i, r)`), simulator},
	{"a decision counts on whatever arguments it was made", condition(step+"refuse", "ArgsHash", "false"), simulator},
	{"a decision counts however late it is", condition(step+"refuse", "Received", "false"), simulator},
	{"a decision has any scope", condition(step+"refuse", "scopes", "true"), simulator},
	{"anybody may decide", condition(step+"refuse", "Approvers who", "true"), simulator},
	{"whoever started the run may decide", condition(step+"refuse", "FourEyes", "false"), simulator},
	{"one approver counts twice", condition(step+"refuse", "Allowed", "false"), simulator},
	{"the first of several approvers is enough", condition(step+"decideAll", "Allowed Quorum", "false"), simulator},
	{"one of several approvers grants more than the call", around(core+"PermissionState.agree", "wanted := *d\noriginal(d, ev)\n*d = wanted"), simulator},
	{"a decision for a tool releases what its author may not decide", around(core+"Call.coveredBy", "return true"), simulator},
	{"a grant covers what another domain decides on", condition("sdk.PermissionTerms.Unmet", "asks", "true"), simulator},
	{"a denied call is made", call(step+"enact", "deny denial", "t.release(call, d, nil)"), simulator},
	{
		"what nobody decides is allowed",
		call(step+"undecided", "deny", "t.release(&h.Calls[h.call(g.Call)], d, nil)"), simulator,
	},
	{"a call is made with the arguments that an approver replaced", value(step+"release", "Edited", "0"), simulator},
	{"an edited call is made that the policy denies", around(step+"refuseEdit", `
		if p.Call.ruling.Verdict == VerdictDeny {
			p.Call.ruling.Verdict = VerdictAllow
		}
		return original(c, p, who)`), simulator},
	{"an edited call is made that others decide on", condition(step+"refuseEdit", "unmet", "false"), simulator},
	{"a grant is never used up", around(core+"use", "if grants[i].Uses == 1 {\nreturn grants\n}\nreturn original(grants, i)"), simulator},
	{"a grant for one call covers others", condition(core+"grants.covers", "ArgsHash", "true"), simulator},
	{"a grant never expires", condition(core+"grants.covers", "Expires now", "false"), test{"internal/core", "TestPlan_AsksAgainWhenAGrantHasExpired"}},
	{"a grant for one tool covers all", condition(core+"grants.covers", "Tool", "false"), simulator},

	// The policy is ruled again on what is really made, when it is made.
	{"what was allowed is made, whatever the policy says by now", around(act+"forbidden", `return "", nil`), cases(3000)},
	{"a call whose turn comes late is made as it was ruled on", condition(step+"unqueue", "RulesOn", "false"), cases(3000)},
	{
		"a call is made that was denied while it waited for its turn", around(core+"Spec.Denial", "return nil"),
		test{"test/pipeline", "TestGrant_IsNoneForACallThatWasDeniedWhileItWaitedForItsTurn"},
	},
	{"a grant outlasts its time in the queue", condition(act+"forbidden", "Expires Now", "false"), cases(10_000)},
	{"hooks are not asked about what people allowed", around(act+"gated", "return nil, nil"), cases(3000)},
	{"a grant makes a call that a hook gave its result", around(core+"Ruling.granted", "return Ruling{Verdict: VerdictAllow}"), cases(3000)},
	{"what a hook suspends is made", value(runs+"askedByHook", "Verdict", "sdk.PermissionAllow"), cases(3000)},
	{"an edit goes round what somebody has denied", around(step+"deniedByGrant", `return "", false`), cases(3000)},
	{"of two policies only one says who is asked", around("internal/approval.route", "return a"), cases(3000)},
	{"of two policies the first counts", around("internal/approval.stricter.Check", "return s.first.Check(ctx, c)"), cases(3000)},
	{"what a run requires is passed over", around("internal/approval.Required.Check", "return r.PermissionManager.Check(ctx, c)"), cases(3000)},
	{"a condition that cannot be evaluated lets calls pass", condition("internal/approval.rule.matches", "Verdict PermissionAllow", "false"), cases(3000)},
	{"a rule for some tools is for none", condition("internal/approval.rule.matches", "Match", "true"), cases(3000)},
	{"grants pass from one domain to another", condition("sdk.PermissionTerms.Unmet", "asks", "true"), cases(3000)},
	{"one of two approvers is enough for later calls", condition("sdk.PermissionTerms.Unmet", "Quorum by", "false"), cases(10_000)},

	{"a tool runs by a decision that may be forgotten", call(act+"loadState", "confirm", ""), test{"test/pipeline", "TestDecision_IsDurableBeforeItsToolRuns"}},

	// Runs that are handed back, and calls that nobody waits for.
	{"an activation that fails counts as one that died", condition(act+"release", "permanent", "true"), simulator},
	{"whoever begins a run does not look whether it was voided", call(act+"goOn", "endVoided", ""), simulator},
	{"a model that is away ends the run", condition(act+"modelFailed", "passes", "false"), simulator},

	{"an append that got no answer is not repeated", condition(act+"appendEntry", "ErrAmbiguous", "false"), simulator},
	{"a driver that finds its entry under others' does not look who drives", call(act+"commit", "stillDriven", ""), simulator},
	{
		"no backstop: nothing takes a run from a silent driver but its own message",
		condition(step+"abandoned", "StaleAfter", "false"), simulator,
	},
}

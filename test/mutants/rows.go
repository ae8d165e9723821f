package main

// ofRows are noticed by the tests of rows of test/seeds: what authors of agents and services see.
var ofRows = []mutant{
	{
		"a sequential agent makes its next call before the last one is answered",
		around(step+"begin", "if tool.Kind == CallService {\nt.send(c, tool)\n}"),
		rows{"T14", "T51"},
	},
	{"nothing is told live that the journal has", around(act+"announce", ""), rows{"F16", "F17", "F18", "F25", "F27", "F28", "F39", "T28", "L14", "L21", "L35"}},
	{"calls are told without their arguments", value(told+"message", "Args c", "nil"), rows{"F16", "L14"}},
	{"results are told without what was returned", around(told+"result", `
		bare := *r
		bare.Data = json.RawMessage("{}")
		original(&bare)`), rows{"F17", "F18", "L21"}},
	{"failures are told as successes", around(told+"result", `
		good := *r
		good.Error = false
		original(&good)`), rows{"F18", "L21"}},
	{"a reply that cannot be read is not told", condition(told+"said", "Misread", "false"), rows{"F25"}},
	{"tools go on that work for a run which was cancelled", statement(runs+"Runner.Wake", "interrupt errWoken", ""), rows{"F27"}},
	{"that a worker lets go of a run is not a checkpoint", condition(step+"suspend", "StatusRunning", "false"), rows{"T20"}},
	{"urgent messages wait for their turn", condition(step+"takeNotes", "Urgent", "false"), rows{"T64"}},
	{"a message that comes again counts again", condition(step+"steered", "Heard Contains", "false"), rows{"T64"}},
	{"agents are called without number", around(core+"Admission.restrict", ""), rows{"T66", "F57"}},
	{"agents do not know who called them", statement(core+"NewInit", "Delegation", ""), rows{"T66"}},
	{"a caller sees a question only when its calls are closed", around(core+"Head.hasQuestion", "return false"), rows{"F57"}},
	{"the answer to an agent that asks is not published", around(act+"publishAnswer", "return nil"), rows{"F57"}},
	{"who asks a run that has ended is told nothing", condition(act+"refuse", "starts asks", "!a.msg.starts()"), rows{"F57"}},
	{"questions outlive the call in which they were asked", around(step+"forgetQuestions", ""), rows{"F57"}},
	{"agents that nobody asks are offered the tool to answer", around(core+"Head.Unusable", "return nil"), rows{"F57"}},
	{"an answer ends no turn", around(step+"hasAnswered", "return false"), rows{"F57"}},
	{"agents call agents however deep", condition(runs+"checkName", "maxDelegation", "false"), rows{"F57"}},
	{"an agent that is handed the task does not complete it", condition(step+"closeRound", "stopsOn", "false"), rows{"T66"}},
	{"a message leaves what it supersedes to go on", around(step+"giveUp", ""), rows{"T65"}},
	{"a model that a message supersedes is waited for", around(runs+"working.steer", ""), rows{"T65"}},
	{"calls that were allowed are forgotten with their worker", around(core+"Call.runnable", "return c.Status != CallResuming && original()"), rows{"T68"}},
	{"a cancelled call's late answer counts", around(step+"answered", `
		if c := t.Head.Call(ev.Ref.ID); c != nil && c.Status == CallCancelled {
			c.Status = CallSuspended
			t.calls = cloneCalls(t.Head.Calls)
		}
		return original(ev)`), rows{"F41"}},
	{"tools go on whose calls were cancelled", around(runs+"working.giveUp", ""), rows{"F41"}},
	{"anybody cancels the calls of a run", around(act+"notTheirs", "return nil"), rows{"F41"}},
	{"what was done first is undone first", around(core+"UndoStack.Calls", "calls := original()\nslices.Reverse(calls)\nreturn calls"), rows{"L71"}},
	{"undoing needs no permission", around(act+"undo", `
		strict, spec := a.agent, *a.agent.Core
		lax := *strict
		spec.NeedsRulings, lax.Core, a.agent = false, &spec, &lax
		defer func() { a.agent = strict }()
		return original(ctx, u)`), rows{"L71"}},
	{"what failed is undone too", condition(core+"UndoStack.Calls", "returned Error Kind", "!returned || s.closed[c.ID]"), rows{"L71", "L42"}},
	{"what was undone can be undone again", condition(core+"UndoStack.Calls", "closed", "false"), rows{"L71", "L42"}},
	{"nobody is told what was undone", statement(step+"undone", "Undone", ""), rows{"L71", "L42"}},
	{"a request that the provider refuses is made again", condition(act+"modelFailed", "passes", "true"), rows{"F28"}},
	{"decisions are not told", condition(told+"asked", "DecisionViewed", "false"), rows{"T28", "F39"}},
	{"a decision on a request that is closed counts again", condition(step+"answered", "Closed", "false"), rows{"T26", "T28"}},
	{"a decision counts only when its run waits", around(step+"decided", `
		if t.was == StatusRunning {
			return ErrStale
		}
		return original(c, ev)`), rows{"T30"}},
	{"a decision counts only while a worker has its run", around(step+"decided", `
		if t.was == StatusWaiting {
			return ErrStale
		}
		return original(c, ev)`), rows{"T30"}},
	{"a decision whose request has not come is not kept", condition(act+"unmatched", "Decides", "false"), rows{"T22", "T49"}},
	{"a decision whose request has not come is kept for ever", condition(act+"unmatched", "EarlyDecisions", "true"), rows{"T49"}},
	{"that nobody decided is not told", statement(step+"undecided", "Decisions", ""), rows{"F39"}},
	{"refused decisions are not recorded", statement(step+"rejected", "Decisions", ""), rows{"L70"}},
	{"results of calls that nobody asked for are not logged", condition("internal/audit.Log.executed", "Tools result", "false"), rows{"L70"}},
	{
		"what RunStart keeps is thrown away",
		around(act+"runStart", "_, err := original(ctx, in, built)\nreturn nil, err"),
		rows{"T2"},
	},
	{
		"RunStart is called twice",
		around(act+"runStart", "if _, err := original(ctx, in, built); err != nil {\nreturn nil, err\n}\nreturn original(ctx, in, built)"),
		rows{"T2"},
	},
	{"hooks are not told that a run rests", call(step+"suspend", "tellEnd", ""), rows{"T6"}},
	{"a run does not rest while all that is open waits", around(core+"Head.awaitsCalls", "return false"), rows{"T6", "T26"}},
	{"a failure is a success", statement(step+"close", "CallFailed", ""), rows{"T34"}},
	{"services do not fail", value(step+"answered", "Error ev", "false"), rows{"T34"}},
	{"AfterToolExecute is not called for calls that were blocked", around(act+"afterTool", `
		if o.Outcome == sdk.OutcomeBlocked {
			return nil, nil
		}
		return original(ctx, s, o)`), rows{"T35"}},
	{"AfterToolExecute is not called for calls that wait", condition(act+"suspended", "Waits", "false"), rows{"T35"}},
	{"a hook that failed is called again", condition(runs+"hooked", "err nil ctx", "false"), rows{"T37"}},
	{"hooks keep as much as they like", condition(runs+"hookEffects.keep", "MaxHookState", "false"), rows{"T37"}},
	{"a call's status changes as none may", condition(core+"allowed", "From To", "true"), rows{"T46"}},
	{"a change of status that may not be is passed over", statement(step+"checkMoves", "illegal", "return nil"), rows{"T46"}},
	{"a run that stops makes no more calls", around(core+"Next", `
		if head.Status == StatusRunning && head.stopping() {
			return BuildOutput{}
		}
		return original(spec, head, now)`), rows{"T53"}},
	{"a limit ends the run before its calls are made", around(core+"Next", `
		if ending, stop := stopped(spec, head); stop && head.Status == StatusRunning {
			return End{ending}
		}
		return original(spec, head, now)`), rows{"T53"}},

	{"a round goes on only when all of its calls have results", around(step+"goesOn", "return false"), rows{"T18"}},
	{"a round goes on although all of its calls wait", condition(step+"goesOn", "news open MaxCarried", "true"), rows{"T18"}},
	{"the result of a call that was shown as pending is lost", around(step+"tellLater", ""), rows{"T18"}},
	{"a text completes a run whose calls are open", condition(step+"replied", "openAny empty Converse", "false"), rows{"T18"}},
	{"a call that is pending is made again", around(core+"Admission.refusePending", ""), rows{"T18"}},
	{"a call that waits has a result", statement(core+"resultOf", "Pending pendingText", "shown.IsError = true"), rows{"T18"}},

	// What a round is made of.
	{"a call that a server streams has no arguments but the first piece of them", statement("internal/llm.assembly.addCall", "arguments WriteString", "if call.arguments.Len() == 0 {\n$\n}"), rows{"L13"}},
	{"tools are run before their calls are kept", around(act+"accept", `
		for _, c := range reply.Calls {
			if tool, ok := a.inline(c.Name); ok {
				_, _ = tool.Run(ctx, sdk.ToolCall{Args: []byte(c.Arguments)})
			}
		}
		return original(ctx, s, reply)`), rows{"L15"}},
	{"built-in tools are run by services", condition(step+"begin", "Kind CallService", "true"), rows{"L16"}},
	{"a result is what the user says", call("internal/llm.userMessages", "resultMessage", "chatMessage{Content: c.Text, Role: chatUser}"), rows{"L22"}},
	{"the final message is not kept", statement(step+"conclude", "Messages Output Data", ""), rows{"L33"}},
	{"the end is told without what came of the run", value(told+"state", "Data Terminal", "nil"), rows{"L35"}},
	{"tokens are not told", around(runs+"fragments.add", "if d.Text == \"\" {\noriginal(d)\n}"), rows{"L36"}},
	{"a server that failed is not asked again", condition("internal/llm.retrying.Generate", "failure Retryable", "true"), rows{"L39", "L40"}},
	{"a request that was refused is made again", condition("internal/llm.retrying.Generate", "failure Retryable", "false"), rows{"L39"}},
	{"one model alone stands in for another", condition("internal/llm.fallback.Generate", "last after", "$ && len(failures) < 2"), rows{"L40"}},

	// What calls of models are taken for.
	{"a name that is not a tool's is never looked for", around(core+"Spec.named", "return s.tool(request.Name), Meaning{}"), rows{"L55"}},
	{"the policy rules on the name that the model wrote", around(core+"admitter.admit", "c := original(index, request, w)\nc.Tool = request.Name\nreturn c"), rows{"L55"}},
	{"tools that act are as easily meant as those that read", condition("internal/toolcall.Names.nearest", "ReadOnly", "best.like >= leastReading && next > best.typos"), rows{"L55"}},
	{"a server's name leads to another server's tools", around("internal/toolcall.Names.named", "return \"\""), rows{"L55"}},
	{"results do not say what was corrected", around(core+"State.correction", "return nil"), rows{"L56"}},
	{"arguments are not repaired", condition(core+"Spec.read", "Repair nil", "false"), rows{"L57"}},
	{"brackets of a reply that was cut off are closed", condition("internal/toolcall.repair.close", "whole", "false"), rows{"L57"}},
	{"every model writes calls as elements", around("internal/llm/texttools.formatOf", "return tagged"), rows{"L59"}},
	{"prose that is a call elsewhere is one", around("internal/llm/texttools.Parse", `
		if r := original(text, schemas); len(r.Calls)+len(r.Faults) > 0 {
			return r
		}
		return pythonic.parse(text, schemas)`), rows{"L59"}},
	{"models override what the agent sets", around(core+"Tool.set", "return written, nil, nil"), rows{"L60"}},
	{"models are shown what the agent sets", around(core+"Spec.Shown", "return messages"), rows{"L60"}},
	{"schemas have what the agent sets", around("internal/schema.rewriter.hide", "return false"), rows{"L60"}},
	{"approvers override what the agent sets", around(core+"Tool.keepsSet", "return \"\", true"), rows{"L60"}},
	{"models never follow", around("internal/catalog.entry.following", "return spec"), rows{"F54"}},
	{"models always follow", condition("internal/catalog.entry.following", "FollowCurrent", "true"), rows{"F54"}},
	{"conditions of hooks on the input always hold", around("internal/catalog.ruleHook", "r.When = \"\"\nreturn original(r)"), rows{"F50"}},
	{"servers' allow-lists count for nothing", around("internal/mcp.Policy.admits", "return true"), rows{"L54"}},

	// What models are shown.
	{"a long result is shown whole", around("internal/prompt.shortened", "return c.Text, true"), rows{"L20"}},
	{"only the beginning of a long result is shown", around("internal/excerpt.Ends.Shorter", "short := original(limit)\nshort.Tail = \"\"\nreturn short"), rows{"L20"}},
	{"a tool has no limit of its own", around("internal/catalog.turns.shown", "return sdk.DefaultResult"), rows{"L20"}},
	{"a large result is part of the entry", around(act+"storeLarge", "return nil"), rows{"L20"}},
	{"people are asked before a model reads on", condition(core+"Admit", "Recalls", "!judged"), rows{"L20"}},
	{"images that tools return are text", around("internal/excerpt.SplitMedia", "return data, nil"), rows{"A23"}},
	{"images that services answer are text", statement(act+"answered", "Media SplitMedia", "_, _ = excerpt.SplitMedia(nil)\nanswer.Data = checked.Data"), rows{"A23"}},

	{"a second summary forgets the first", value(act+"compact", "Messages former", "c.Messages"), rows{"L31"}},
	{"the task is left out with what is old", condition(core+"State.Conversation", "RoleUser first last", "false"), rows{"L2", "L31"}},
	{"no result is shown in one line", around("internal/prompt.oneLine", "return c.Text"), rows{"L51"}},
	{"nothing is left out of a conversation that is too long", around("internal/prompt.conversation.shorten", "return nil"), rows{"L2", "L31", "F30"}},
	{"the summary is not in the system prompt", around("internal/prompt.Remembered", "return \"\""), rows{"L3", "F43"}},
	{"files that were touched are forgotten", around("internal/prompt.Touched", "return nil"), rows{"L32"}},
	{"a conversation is shortened before the first round only", condition(act+"callModel", "Compaction", "$ && a.state.Turns == 0"), rows{"L23"}},
	{"a conversation is not shortened before the first round", condition(act+"callModel", "Compaction", "$ && a.state.Turns > 0"), rows{"L2"}},
	{"a prompt is that of the round before", around(core+"State.Conversation", "c := original()\nn := max(1, len(c.Messages)-2)\nc.Messages, c.Task = c.Messages[:n], c.Task[:n]\nreturn c"), rows{"L24"}},
	{"definitions of tools are not measured", around("internal/prompt.Counter.Tools", "return 2000"), rows{"L5"}},
	{"a round begins however little is left", condition("internal/prompt.Fit", "Remaining Gate", "false"), rows{"L12"}},
	{"what hooks add takes nothing of the window", statement("internal/prompt.Fit", "room said", ""), rows{"L12"}},
	{"what hooks add is never cut", around("internal/prompt.shortMessage", "return m"), rows{"L12"}},
	{"hooks' longer replies take nothing of the window", condition("internal/catalog.turns.build", "MaxTokens", "false"), rows{"L12"}},
	{"who watches is not told of the budget", around(act+"budgeted", ""), rows{"L34"}},
	{"JSON is estimated as prose", around("internal/prompt.Counter.JSON", "return c.Prose(text)"), rows{"L43"}},
	{"what providers count is not learnt from", around(core+"Head.calibrate", ""), rows{"L43"}},
	{"summaries have no headings", value("internal/prompt.Ask", "headings toolHeadings", "\"\""), rows{"F42"}},
	{"all turns are summarised at once", around("internal/prompt.Compaction.Batches", "return [][][]sdk.Message{c.Turns}"), rows{"F44"}},
	{"that a summary failed is not told", call(act+"compact", "live LiveCompactionFailed", ""), rows{"F45"}},
	{"the agent's own model summarises", around("internal/catalog.summarizer", "return own, spec.Model.Name, nil"), rows{"F46"}},
	{"agents are offered a tool twice", around("internal/toolbox.Toolbox.Definitions", "all := original()\nreturn append(all, all[len(all)-1])"), rows{"L4"}},
	{"the history is cut anywhere", around("internal/prompt.Frontier", "return true"), rows{"F30", "T60"}},
	{"a summary is made of whole results", around("internal/prompt.preview", "return endsOf(c).Head"), rows{"T60"}},
	{"pauses before a model is asked again do not grow", statement("internal/llm.retrying.pause", "Next", "growing.Next()\ninterval := 500 * time.Millisecond"), rows{"T54"}},
	{"any failure asks the next model", condition("internal/llm.fallback.Generate", "last after", "false"), rows{"T54"}},
	{"a reply is recovered 50 times", condition("internal/llm.recovering.Generate", "mostRecoveries", "recoveries == 50"), rows{"T55"}},
	{"a reply is continued once", condition("internal/llm.continuing.Generate", "unfinished", "$ && strings.Count(whole.Text, \"answer\") < 2"), rows{"T55"}},
	{"calls that a server could not read are asked for again", around("internal/llm.rescued", "return sdk.ModelReply{}, false"), rows{"L58"}},
	{"a call is of the first tool that is offered", condition("internal/llm.rescued", "len Tools", "len(req.Tools) > 0"), rows{"L58"}},
	{"a reply may be of any size", condition("internal/llm/texttools.textual.understand", "MaxText len", "true"), rows{"F38"}},
	{"a reply may have half of what it may", condition("internal/llm/texttools.textual.understand", "MaxText len", "len(reply.Text) <= MaxText/2"), rows{"F38"}},
	{"decisions are checkpoints", around(step+"decided", `
		err := original(c, ev)
		t.Checkpoints = append(t.Checkpoints, CheckpointToolResults)
		return err`), rows{"T5", "T16"}},
	{"held calls do not wait for the other decisions", condition(step+"awaitsDecisions", "open", "false"), rows{"T5"}},
	{"a decision counts whatever it says it is on", around(core+"Head.expects", "return true"), rows{"T16"}},
	{"what a message brings about waits for the driver", call(act+"absorbed", "carryOut", `func() error {
		if d := entry.Head.Driver; d != nil && d.Owner != a.owner {
			return nil
		}
		return $
	}()`), rows{"T41"}},
	{"decisions wait for tools", around(step+"answered", `
		if t.Head.Status == StatusRunning && ev.Decision != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "later")
		}
		return original(ev)`), rows{"T41"}},
	{"who has lost a run goes on with it", condition(step+"driven", "Owner", "false"), rows{"T57"}},
	{"entries are written on whatever is there", condition("internal/state/memory.Store.Append", "last base Etag", "false"), rows{"T57"}},
	{"work is not bounded by the run's deadline", around(act+"withTimeout", "return a.Env.WithTimeout(ctx, most)"), rows{"T52"}},
	{"a run has no deadline", condition(step+"fired", "Deadline", "false"), rows{"T52"}},
	{"a limit allows for one more", condition(core+"stopped", "MaxTurns", "h.Turns > spec.MaxTurns"), rows{"F24"}},
	{"that a limit is reached is not told", condition(told+"state", "ReasonQuota", "false"), rows{"F24"}},
	{"conditions of rules are not looked at", condition(policies+"rule.matches", "when nil", "true"), rows{"F40"}},
	{"what no rule allows is allowed", around(policies+"Policy.Check", `
		r, err := original(nil, c)
		if r.Verdict == sdk.PermissionDeny {
			r.Verdict = sdk.PermissionAllow
		}
		return r, err`), rows{"F40"}},
	{"grants are not revoked", around("internal/broker/buckets.Grants.Revoke", "return true, nil"), rows{"L69"}},
	{"what is allowed for a run is allowed for others", condition(step+"grant", "ScopePrincipal g Deny", "!g.Deny"), rows{"L69"}},
	{"reminders are forgotten", around(step+"reminded", ""), rows{"T61"}},
	{"reminders have no pause", condition(core+"Head.Due", "Turn cooldown", "true"), rows{"T61"}},
	{"what is shown once is shown again when it changes", condition(core+"Head.Due", "once", "false"), rows{"T61"}},
	{"a call is made although somebody gave its result", around(step+"enact", `
		if d.Decision == sdk.DecisionResult {
			d.Decision = sdk.DecisionAllow
		}
		return original(c, d, ev, before)`), rows{"T47"}},
	{"anybody may give results", around(core+"PermissionState.refuseResult", "return nil"), rows{"T47"}},
	{"the given result is not the call's", value(step+"enact", "Data Result d", "nil"), rows{"T47"}},
	{"rounds that failed are not counted", around(step+"guardErrors", ""), rows{"L46"}},
	{"what was denied has failed", value(step+"guardResult", "failed Error ResultAnswer", "r.Error"), rows{"L46"}},
	{"tools that fail stay", around(step+"guardFailures", ""), rows{"L47"}},
	{"tools that were withdrawn are offered", around(core+"Head.Withdrawn", "return nil"), rows{"L47"}},
	{"tools that were withdrawn may be called", condition(core+"Admission.guard", "Reason at", "false"), rows{"L47"}},
	{"duplicates are made", statement(core+"Admission.guard", "repeats known", ""), rows{"L48"}},
	{"tools that act are answered from earlier calls", condition(core+"Admission.guard", "ReadOnly Changing", "false"), rows{"L48"}},
	{"nothing ever changes", condition(step+"guardRound", "acted ReadOnly", "false"), rows{"L48"}},
	{"a duplicate has no result", around(core+"State.reuse", ""), rows{"L48"}},
	{"duplicates need no permission", around(step+"openCall", `
		if p.repeats != "" {
			t.reuse(c, p.repeats)
			return
		}
		original(c, p, part)`), rows{"L48"}},
	{"what people say changes nothing", around(core+"Guarded.heard", ""), rows{"L48"}},
	{"a model may repeat itself for ever", value(step+"guardRepeats", "Concludes", "false"), rows{"L49"}},
	{"one duplicate makes a round of duplicates", value(step+"guardRound", "repeated Ended", "repeated || c.Ended == ResultRepeated"), rows{"L49"}},
	{"tokens of the task are not estimated", value(act+"prepare", "Tokens Estimate", "0"), rows{"L1"}},
	{"the model is asked before the task is durable", around(act+"prepare", `
		b, err := original(ctx, run, data, init, require)
		_, _ = a.agent.Model.Generate(ctx, sdk.ModelRequest{Run: run}, nil)
		return b, err`), rows{"L1"}},
	{"all turns are sampled alike", around("sdk.ModelSpec.Sampled", "return original(\"\")"), rows{"L52"}},
	{"a summary is a turn with tools", around("internal/runner.kindOf", "return original(r, false)"), rows{"L52"}},
	{"what hooks want of the temperature does not reach the model", value("internal/llm.priced.Generate", "Temperature", "sample.Temperature"), rows{"L52"}},
	{"the day is not told", condition("internal/catalog.overlays.build", "zone nil", "false"), rows{"L73"}},
	{"the working context is that of the first turn", call("internal/catalog.overlays.build", "Render", "o.working.Render(prompt.Data{Input: data.Input})"), rows{"L73"}},
	{"instructions of the project are templates", around("internal/prompt.System", `
		for i := range sections {
			if t, err := Parse("t", sections[i].Text); sections[i].Name == Instructions && (err != nil || t == nil) {
				sections[i].Text = ""
			}
		}
		return original(instructions, sections...)`), rows{"F55"}},
	{"the sections that come with agentd name no tools", around("sdk.StandardGuidance", "g := original()\ng.Capabilities = \"You can call tools.\"\nreturn g"), rows{"F8"}},
	{"all of a project's instructions are taken", condition("internal/config.loader.instructions", "sections", "false"), rows{"F55"}},
	{"a batch is asked for one by one", around(step+"batchID", `return ""`), rows{"A34", "B10"}},
	{"a decision on one call is one on all", around(core+"Head.DecidedRequests", `
		if all := *d; len(d.Calls) > 0 {
			all.Calls, all.All, all.ArgsHash = nil, true, callsHash(h.askedIn(c, attempt))
			return original(c, attempt, &all)
		}
		return original(c, attempt, d)`), rows{"A34"}},
	{"all may be decided by who has not seen them", condition(core+"Head.DecidedRequests", "ArgsHash callsHash", "false"), rows{"A34"}},
	{"a batch is taken back when one of its calls is decided", around(core+"Head.sharesAttempt", "return false"), rows{"A34"}},
	{"a decision grants as often as it names calls of a tool", around(core+"enacted.grants", "return false"), rows{"B10"}},
	{"what was allowed for the run is not looked up", around(core+"grants.covering", "return -1"), rows{"B10"}},
	{"servers are not released", around("internal/mcp.Server.Close", "return nil"), rows{"A3"}},
	{"a worker that stops leaves its toolsets open", around("internal/catalog.closeAll", "return nil"), rows{"A3"}},
	{"an empty reply is an answer", around(core+"Empty", "return false"), rows{"L37", "L38"}},
	{"empty replies are not counted in a row", statement(step+"replied", "Answers Empty", ""), rows{"L37"}},
	{"what is left to do is not told by what is there", around(core+"emptyNudge", "return original(0)"), rows{"L45"}},
	{"a nudge is told for ever", statement(step+"count", "Nudge", ""), rows{"L45"}},
	{"nobody asks for a summary", around(core+"Head.Summarises", "return false"), rows{"L38"}},
	{"a summary is asked for with tools", statement(act+"conclude", "Tools", ""), rows{"L38"}},
	{"the summary may claim anything", around(step+"nudge", "original(strings.TrimSuffix(text, FinalAnswer))"), rows{"L44"}},
	{"no answer is incomplete", around("internal/judge.Look.Find", "if judge == Incomplete {\n\treturn \"\"\n}\nreturn original(judge)"), rows{"L25"}},
	{"a text that is sent back is not withdrawn", condition(told+"said", "Messages Accepted Terminal", "false"), rows{"L26"}},
	{"a text that is sent back is forgotten", statement(step+"sendsBack", "Messages RoleAssistant", ""), rows{"L27"}},
	{"the last answer is sent back", condition(step+"sendsBack", "last Required", "false"), test{"internal/core", "TestAnswers_AreSentBackOnlyWhereThatCanMendThem"}},
	{"a requirement ends with the model calls", condition(step+"sendsBack", "last Required", "last"), test{"internal/core", "TestAnswers_AreSentBackOnlyWhereThatCanMendThem"}},
	{"a model without tools is told to call them", condition(step+"object", "Final WantsCalls", "false"), test{"internal/core", "TestAnswers_AreSentBackOnlyWhereThatCanMendThem"}},
	{"no final answer is sent back", condition(step+"object", "Final WantsCalls", "ev.Final"), test{"internal/core", "TestAnswers_AreSentBackOnlyWhereThatCanMendThem"}},
	{"no answer deflects", around("internal/judge.Look.Find", "if judge == Deflecting {\n\treturn \"\"\n}\nreturn original(judge)"), rows{"L28"}},
	{"a judge sends texts back for ever", around(core+"Answers.refused", "return 0"), rows{"L29"}},
	{"nothing is complete", around("internal/judge.Pack.completes", "return false"), rows{"L30"}},
	{"what is open is done", call("internal/judge.Pack.incomplete", "found open", `""`), test{"internal/judge", "TestLook_PhrasesDecideAloneWithoutWeights"}},
	{"a part is all", around("internal/judge.Pack.part", `return ""`), test{"internal/judge", "TestLook_PhrasesDecideAloneWithoutWeights"}},
	{"a short question needs words of a question", condition("internal/judge.Pack.deflecting", "short", "false"), test{"internal/judge", "TestLook_PhrasesDecideAloneWithoutWeights"}},
	{"a long text that ends in a question is one", condition("internal/judge.Pack.deflecting", "short", "true"), test{"internal/judge", "TestLook_PhrasesDecideAloneWithoutWeights"}},
	{"what is learned is not asked", around("internal/judge.Look.Find", "return k.Phrase(judge)"), test{"internal/judge", "TestLook_WeighsWhatPhrasesFind"}},
	{"a phrase is an objection whatever is learned", around("internal/judge.Look.Find", `
		if found := k.Phrase(judge); found != "" {
			return found
		}
		return original(judge)`), test{"internal/judge", "TestLook_WeighsWhatPhrasesFind"}},
	{"nothing is objected to without a phrase", around("internal/judge.Look.Find", `
		if k.Phrase(judge) == "" {
			return ""
		}
		return original(judge)`), test{"internal/judge", "TestLook_WeighsWhatPhrasesFind"}},
	{"words weigh more than calls", around("internal/judge.Look.Open", "return true"), test{"internal/judge", "TestLook_CallsCountMore"}},
	{"tools have no names to judges", around("internal/judge.toolWords", "return nil"), test{"internal/judge", "TestVector_KnowsTools"}},
	{"forms of a word have nothing in common", around("internal/judge.rooted", "return word"), test{"internal/judge", "TestVector_KnowsHowWordsBegin"}},
	{"weights in any order are searched", condition("internal/judge.readWeights", "hash", "false"), test{"internal/judge", "TestWeights_AreWhole"}},
	{"weights of one judge alone are kept", condition("internal/judge/train.table", "row", "row[0] != 0"), test{"internal/judge/train", "TestTable_KeepsWhatWeighs"}},
	{"any sentence is named", around("internal/judge.weights.weigh", "sum, _ = original(judge, v)\nreturn sum, 0"), test{"internal/judge", "TestLook_NamesTheSentence"}},
	{"an answer without a model is made in the model's time", call(act+"generate", "modelFailed", "a.modelFailed(within, err)"), test{"internal/runner", "TestDegraded_IsBuiltAfterTheModelsTime"}},
	{"a run waits although its agent has an answer without a model", around(act+"degraded", "return nil"), rows{"L41"}},
	{"claims are not looked at", around("internal/judge.Look.Find", "if judge == Unverified {\n\treturn \"\"\n}\nreturn original(judge)"), rows{"L50"}},
	{"constraints keep nothing from being done", around("internal/catalog.constraints.gate", "return sdk.Gate{}, nil"), rows{"F52"}},
	{"a run forgets what it has written", around("internal/catalog.constraints.writes", "attempt.State = nil\nreturn original(w, attempt)"), rows{"F52"}},
	{"a constraint on a tool that there is not is passed over in silence", around(policies+"Tools.constraints", "return nil"), rows{"F52"}},
	{"nobody is asked who is to be asked about outputs", around(core+"AnswerQuestion", "return nil, nil"), rows{"F53"}},
	{"an output is the answer whatever the service says", around(step+"accepts", ""), rows{"F53"}},
	{"a service sends outputs back for ever", condition(step+"unaccepted", "times Most Required", "false"), rows{"F53"}},
	{"a run completes without the word of a service that it requires", condition(step+"lacks", "failedRequired lacks", "false"), rows{"F53"}},
	{"a run is not held to its own constraints", condition("internal/catalog.constraints.all", "attempt Constraints nil", "false"), rows{"F52"}},
	{"a run's constraints stand in for its agent's", around("internal/catalog.constraints.all", `
		if attempt.Constraints != nil {
			return []sdk.Constraints{*attempt.Constraints}
		}
		return original(attempt)`), rows{"F52"}},
	{"constraints that nothing holds a run to are taken", condition(act+"constrained", "CheckConstraints nil", "false"), rows{"F52"}},
	{"what cannot be read of a run's constraints is passed over", statement(act+"constrained", "DisallowUnknownFields", ""), rows{"F52"}},
	{"a run that is under way is not offered the tools that have come", around(act+"renewAgent", ""), rows{"F51"}},
	{"a toolset is listed once", around("internal/worker.Worker.refresh", ""), rows{"F51"}},
	{"any file may be written", around("internal/catalog.mayWrite", "return true"), rows{"F52"}},
	{"no output is refused", around("internal/catalog.gatesOf", "return nil, nil"), rows{"F53"}},
	{"what fits is another one on another worker", condition(act+"choose", "o For of", "false"), rows{"L8"}},
	{"tools are indexed again whenever an agent is compiled", condition("internal/catalog.indexes.of", "found nil", "false"), test{"internal/catalog", "TestIndexes_AreMadeOncePerListOfTools"}},
	{"embeddings are not kept", statement("internal/catalog.embeddings.ofTools", "PutSpec", ""), rows{"L8"}},
	{"what is least alike is offered", around("internal/selection.Similarity", "return 1 - original(a, b)"), rows{"L8"}},
	{"there are no words where embeddings cannot be had", condition("internal/catalog.selector.scores", "err nil", "false"), rows{"L74"}},
	{"tools are chosen where they are few", around("sdk.Selection.Selects", "return s != nil"), rows{"L74"}},
	{"categories are not opened", around(core+"FoundTools", "return nil"), rows{"L53"}},
	{"a tool that was not offered is not called", around(core+"Spec.tool", `
		if name == "shop_find" && s.Selects {
			return nil
		}
		return original(name)`), rows{"L8", "L53"}},
	{"what an agent always offers is chosen like the others", statement("internal/catalog.Catalog.selecting", "fixed true", ""), rows{"L75"}},
	{"what the run has called is forgotten", around(core+"State.Uses", "return nil"), rows{"L75", "L53"}},
}

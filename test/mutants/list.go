package main

// mutant is one seeded bug.
type mutant struct {
	name string
	// file is relative to the module; old, which occurs exactly once, is replaced by new.
	file, old, new string
	// within is how many histories the simulator may need to notice it; 0 is 20,000.
	within int
}

var mutants = []mutant{
	// Effects come after the entry, and are carried out again until they are out (R1, R2, R3).
	{
		name: "publish before commit", file: "internal/runner/drive.go",
		old: "entry, at, err := a.appendEntry(ctx, a.at, change, a.Env.Now())",
		new: "early := core.Entry{Rev: a.at.Rev + 1, Cause: a.msg.Cause, At: a.Env.Now(), Change: change}\n" +
			"\t\tif err := a.carryOut(ctx, &early, change.Effects); err != nil {\n\t\t\treturn err\n\t\t}\n" +
			"\t\tentry, at, err := a.appendEntry(ctx, a.at, change, a.Env.Now())",
	},
	{
		name: "ack before the work", file: "internal/handler/handler.go",
		old: "h.settle(ctx, d, h.process(ctx, d, m))",
		new: "h.settle(ctx, d, runner.Verdict{})\n\th.settle(ctx, d, h.process(ctx, d, m))",
	},
	{
		name: "a lost answer of the store is taken for a yes", file: "internal/runner/journal.go",
		old: "case err == nil:\n\t\t\ta.wrote = true",
		new: "case err == nil || errors.Is(err, ErrAmbiguous):\n\t\t\tv = next.Version\n\t\t\ta.wrote = true",
	},
	{
		name: "failed effects are passed over", file: "internal/runner/effect.go",
		old: "if err != nil {\n\t\t\treturn fmt.Errorf(\"%s of entry", new: "if false {\n\t\t\treturn fmt.Errorf(\"%s of entry",
	},
	{
		name: "effects of a duplicate are not carried out again", file: "internal/runner/activation.go",
		old: "if !slices.ContainsFunc(causes, e.Cause.Is) {", new: "if true {",
	},
	{
		name: "effects of a dead driver are not carried out again", file: "internal/runner/activation.go",
		old: "if driver != nil && (drives || driver.Covers(a.msg.Cause)) {", new: "if driver != nil && false {",
	},
	{
		name: "what the run waits for is not carried out again", file: "internal/core/next.go",
		old: "var effects []Awaited\n", new: "var effects []Awaited\n\tif true {\n\t\treturn nil\n\t}\n",
	},
	{
		name: "a message for nobody is acked without a dead letter", file: "internal/runner/activation.go",
		old: "v, err := a.refuse(ctx, orphan())",
		new: "v, err := Verdict{}, error(nil)",
	},
	{
		name: "a dead letter is acked before it is put", file: "internal/handler/handler.go",
		old: "break // not acked", new: "h.Logger.Error(\"not put\", \"error\", err) // not acked",
	},
	{
		name: "a drained worker acks what it leaves", file: "internal/runner/drive.go",
		old: "return Verdict{Settlement: Retry}, nil", new: "return Verdict{}, nil",
	},

	// What was read is durable, and not of another history, before anything follows from it (R1, R4).
	{
		name: "no barrier before a duplicate is acked", file: "internal/runner/activation.go",
		old: "if err := a.Store.Barrier(ctx, a.key, a.at.Version); err != nil {\n\t\treturn Verdict{}, fmt.Errorf(\"confirm run %s: %w\"",
		new: "if err := error(nil); err != nil {\n\t\treturn Verdict{}, fmt.Errorf(\"confirm run %s: %w\"",
	},
	{
		name: "no barrier before a message is refused", file: "internal/runner/activation.go",
		old: "if a.at.Rev > 0 {", new: "if false {",
	},
	{
		name: "a step that was found written is not confirmed", file: "internal/runner/drive.go",
		old: "nobody has confirmed it yet.\n\t\t\tif err := a.confirm(ctx); err != nil {",
		new: "nobody has confirmed it yet.\n\t\t\tif err := error(nil); err != nil {", within: 100_000,
	},
	{
		name: "effects of entries that are not durable", file: "internal/runner/journal.go",
		old: "if entries = entries[:a.at.Rev]; len(entries) == 0 || entries[len(entries)-1].Etag == a.at.Etag {",
		new: "if true {",
	},
	{
		name: "effects of a history that was forgotten", file: "internal/runner/journal.go",
		old: "len(entries) == 0 || entries[len(entries)-1].Etag == a.at.Etag", new: "true", within: 5000,
	},
	{
		name: "a message is refused for what may be forgotten", file: "internal/runner/activation.go",
		old: "if a.at.Rev > 0 {\n\t\tif err := a.Store.Barrier(", new: "if a.at.Rev > 0 && a.msg.starts() {\n\t\tif err := a.Store.Barrier(",
	},
	{
		name: "the head is read as a journal is: it may be old", file: "internal/runner/activation.go",
		old: "rec, err := a.Store.Head(ctx, a.key)",
		new: "rec := Record{}\n\trecs, err := a.Store.Entries(ctx, a.key, Version{})\n\tif len(recs) > 0 {\n\t\trec = recs[len(recs)-1]\n" +
			"\t} else if err == nil {\n\t\terr = ErrNotFound\n\t}",
	},
	{
		name: "etags are numbers", file: "internal/runner/journal.go",
		old: "Etag: a.Env.Random()", new: "Etag: fmt.Sprint(at.Rev + 1)",
	},
	{
		name: "a driver does not notice that its entry was forgotten", file: "internal/runner/drive.go",
		old: "if rec.Etag != a.at.Etag {", new: "if false {",
	},
	{
		name: "entries need not follow each other", file: "internal/runner/journal.go",
		old: "if e.Rev != at.Rev+1 || e.Prev != at.digest {", new: "if false {", within: 100_000,
	},
	{
		name: "a driver does not find its own entry", file: "internal/runner/drive.go",
		old: "if entries[0].Etag == refused {", new: "if false {",
	},
	{
		name: "a cached state is of any history", file: "internal/runner/drive.go",
		old: "if ok && c.at.Etag == former.Etag {", new: "if ok {",
	},
	{
		name: "a journal may be read without its end", file: "internal/runner/journal.go",
		old: "if err != nil || end.Rev >= rev ||", new: "if err != nil || len(entries) > 0 ||",
	},

	// One driver (R5).
	{
		name: "no fence check", file: "internal/core/step.go",
		old: "t.Head.Driver.Owner != t.in.Owner", new: "false",
	},
	{
		name: "a new driver has the old fence", file: "internal/core/step.go",
		old: "h.Fence++", new: "h.Fence = max(h.Fence, 1)",
	},
	{
		name: "who lost the run acks", file: "internal/runner/drive.go",
		old: "return Verdict{Settlement: Leave}, nil", new: "return Verdict{}, nil",
	},
	{
		name: "an answer takes the run from its driver", file: "internal/core/round.go",
		old: "case h.Status == StatusWaiting:\n\t\tt.take()", new: "default:\n\t\tt.take()",
	},
	{
		name: "a redelivered driving message is a duplicate", file: "internal/runner/input.go",
		old: "a.head.Status == core.StatusRunning && a.head.Driver.Covers(a.msg.Cause)", new: "false",
	},
	{
		name: "workers die on a run for ever", file: "internal/core/step.go",
		old: "if takeovers > MaxTakeovers {", new: "if false {",
	},
	{
		name: "a control message counts that was refused for want of its run", file: "internal/runner/early.go",
		old: "return a.msg.Received+mostAhead.Milliseconds() < began", new: "return false && began > 0", within: 100_000,
	},
	{
		name: "a control message does not wait for its run", file: "internal/runner/early.go",
		old: `a.head.Status == "" && a.Env.Now() < a.msg.Received+waitForRun.Milliseconds():`, new: "false:", within: 100_000,
	},

	// One result for each call, one end for each run.
	{
		name: "a later answer overwrites the result", file: "internal/core/step.go",
		old: "case i < 0 || h.Calls[i].Closed():", new: "case i < 0:",
	},
	{
		name: "an answer counts wherever it comes from", file: "internal/core/step.go",
		old: "if !c.expects(ev) {", new: "if false {",
	},
	{
		name: "only the last attempt may be answered", file: "internal/core/step.go",
		old: "ev.Ref.Attempt > c.attempt() {", new: "ev.Ref.Attempt != c.attempt() {",
	},
	{
		name: "all attempts at a call are one event", file: "internal/core/retry.go",
		old: "c.Attempt, c.Sent, c.RetryAt = c.attempt()+1,", new: "c.Attempt, c.Sent, c.RetryAt = c.attempt(),",
	},
	{
		name: "every attempt at an agent starts a run", file: "internal/runner/input.go",
		old: `init.Token = wire.InitToken("", ref.ID)`, new: `init.Token = wire.InitToken("", call.Call)`,
	},
	{
		name: "call ids do not cover the content", file: "sdk/wire/ids.go",
		old: "\th.Write(args)\n", new: "\t_ = args\n",
	},
	{
		name: "the terminal id depends on the worker", file: "internal/runner/effect.go",
		old: "ev.ID = wire.TerminalID(a.key, init.Token)", new: "ev.ID = wire.TerminalID(a.key, init.Token+a.Env.Random())",
	},
	{
		name: "events carry the time when they are published", file: "internal/runner/effect.go",
		old: "Subject: h.Run, Time: time.UnixMilli(e.At).UTC()", new: "Subject: h.Run, Time: time.UnixMilli(a.Env.Now()).UTC()",
	},
	{
		name: "a second init event restarts the run", file: "internal/core/step.go",
		old: `if t.Head.Status != "" {`, new: `if t.Head.Status == StatusRunning {`,
	},
	{
		name: "a child answers to nobody", file: "internal/runner/effect.go",
		old: "if init.Reply == nil {", new: "if true {",
	},
	{
		name: "who was asked in vain is not told", file: "internal/core/round.go",
		old: "if !c.sent() {", new: "if true {",
	},

	// Tools.
	{
		name: "an at-most-once tool is run by any driver", file: "internal/core/next.go",
		old: "c.Status == CallRunning && c.Begun != head.Driver.Owner", new: "false",
	},
	{
		name: "an at-most-once tool is not marked", file: "internal/core/next.go",
		old: "c.Status != CallRunning && tool != nil && tool.AtMostOnce", new: "tool == nil && c.Status != CallRunning",
	},

	// Time.
	{
		name: "a timer fires without being due", file: "internal/core/step.go",
		old: "if c.Due == 0 || c.Due > ev.Now {", new: "if c.Due == 0 {",
	},
	{
		name: "the run's timer is not armed", file: "internal/core/round.go",
		old: "t.Effects = append(t.Effects, Effect{Kind: EffectTimer, Due: due})", new: "_ = due",
	},
	{
		name: "a timer that fired counts as armed", file: "internal/core/step.go",
		old: "\th.Timer = 0\n", new: "",
	},
	{
		name: "an earlier timer is not armed", file: "internal/core/round.go",
		old: "h.Timer == 0 || due < h.Timer {", new: "h.Timer == 0 {",
	},

	// Messages into a run, questions of tools, summaries.
	{
		name: "a message that comes twice is heard twice", file: "internal/core/steer.go",
		old: "case slices.Contains(h.Heard, note.ID):", new: "case false:",
	},
	{
		name: "messages are dropped when the model could be told", file: "internal/core/steer.go",
		old: "\th.Review = false\n\tt.flushNotes()", new: "\th.Review = false\n\th.Notes, h.Urgent = nil, false",
	},
	{
		name: "a run that ends keeps messages to itself", file: "internal/core/round.go",
		old: "\tt.flushNotes()\n\th.Status, h.Reason,", new: "\th.Notes = nil\n\th.Status, h.Reason,",
	},
	{
		name: "who is not waited for because of a message is not told", file: "internal/core/steer.go",
		old: "\t\tt.void(c)\n", new: "",
	},
	{
		name: "a tool is not handed what it kept with its question", file: "internal/core/ask.go",
		old: "answer := &sdk.ToolAnswer{State: s.Asks[i].State}", new: "answer := &sdk.ToolAnswer{}",
	},
	{
		name: "a question that nobody answers leaves its call alone", file: "internal/core/ask.go",
		old: "if i := t.Head.call(q.Tool); i >= 0 && t.Head.Calls[i].Status == CallSuspended {", new: "if i := -1; i >= 0 {",
	},
	{
		name: "an at-most-once tool that asked is not marked again", file: "internal/core/next.go",
		old: "case c.Status != CallRunning && tool != nil && tool.AtMostOnce:",
		new: "case c.Status == CallNew && tool != nil && tool.AtMostOnce:",
	},
	{
		name: "a second summary forgets the first", file: "internal/core/compact.go",
		old: "return s.Summary.Messages + n - 1", new: "return n",
	},
	{
		name: "a sequential round makes all its calls", file: "internal/core/reply.go",
		old: "\t\tt.send(c, tool)\n\t}\n}", new: "\t\tt.send(c, tool)\n\t}\n\tif t.spec.Sequential && tool.Kind == CallService {\n\t\tt.send(c, tool)\n\t}\n}",
	},
	{
		name: "what is to be made together is never made", file: "internal/core/reply.go",
		old: "return t.spec.Batch && h.open(func(k *Call) bool { return k.Gate != nil }) &&", new: "return t.spec.Batch &&",
	},

	// Permissions.
	{
		name: "what could not be checked is allowed", file: "internal/runner/permission.go",
		old: `rulings[i] = core.Ruling{Verdict: sdk.PermissionDeny, Reason: "its permission could not be checked"}`,
		new: "rulings[i] = core.Ruling{Verdict: sdk.PermissionAllow}",
	},
	{
		name: "what the policy denies is allowed", file: "internal/core/permission.go",
		old: "case sdk.PermissionDeny:\n\t\treturn r\n\t}", new: "case sdk.PermissionDeny:\n\t\tr.Verdict = sdk.PermissionAllow\n\t\treturn r\n\t}",
	},
	{
		name: "a decision counts on whatever arguments it was made", file: "internal/core/decision.go",
		old: "case d.ArgsHash != g.ArgsHash:", new: "case false:",
	},
	{
		name: "a decision counts however late it is", file: "internal/core/decision.go",
		old: "case ev.Received >= c.Due:", new: "case false:",
	},
	{
		name: "a decision has any scope", file: "internal/core/decision.go",
		old: "case !slices.Contains(g.scopes(), d.Scope):", new: "case false:",
	},
	{
		name: "anybody may decide", file: "internal/core/decision.go",
		old: "case len(g.Approvers) > 0 && !slices.Contains(g.Approvers, who):", new: "case false:",
	},
	{
		name: "whoever started the run may decide", file: "internal/core/decision.go",
		old: "case g.FourEyes && (who == \"\" || who == t.Head.Init.Who):", new: "case false:",
	},
	{
		name: "one approver counts twice", file: "internal/core/decision.go",
		old: "case g.Quorum > 1 && (who == \"\" || slices.Contains(g.Allowed, who)):", new: "case false:",
	},
	{
		name: "the first of several approvers is enough", file: "internal/core/decision.go",
		old: "if len(c.Gate.Allowed) < c.Gate.Quorum {", new: "if false {",
	},
	{
		name: "one of several approvers grants more than the call", file: "internal/core/decision.go",
		old: "if g.Agreed == nil {", new: "if false {",
	},
	{
		name: "a decision for a tool releases what its author may not decide", file: "internal/core/decision.go",
		old: "!c.Gate.terms().Admit(d.Scope, by, decided.Gate.Signed, h.Init.Who) {", new: "false {",
	},
	{
		name: "a denied call is made", file: "internal/core/decision.go",
		old: "default:\n\t\tt.deny(gated, denial(c.Tool, d.Reason))", new: "default:\n\t\tt.release(gated, tool, d)",
	},
	{
		name: "what nobody decides is allowed", file: "internal/core/decision.go",
		old: "t.deny(&h.Calls[h.call(g.Call)], denial(c.Tool, d.Reason))",
		new: "t.release(&h.Calls[h.call(g.Call)], t.spec.tool(c.Tool), d)",
	},
	{
		name: "a call is made with the arguments that an approver replaced", file: "internal/core/decision.go",
		old: "gated.Edited = t.in.Rev", new: "gated.Edited = 0",
	},
	{
		name: "an edited call is made that the policy denies", file: "internal/core/edit.go",
		old: `return editRefused(byRule("the policy denies them", ev.Edited.Rule), ev.Edited.Reason)`, new: "return nil",
	},
	{
		name: "an edited call is made that others decide on", file: "internal/core/edit.go",
		old: "len(unmet) > 0 {", new: "len(unmet) > 99 {",
	},
	{
		name: "a grant is never used up", file: "internal/core/permission.go",
		old: "left = slices.Delete(left, i, i+1)", new: "left[i].Uses = 1",
	},
	{
		name: "a grant for one call covers others", file: "internal/core/permission.go",
		old: "return g.ArgsHash == sdk.ArgsHash(args)", new: "return true",
	},
	{
		name: "a grant never expires", file: "internal/core/permission.go",
		old: "g.Expires > 0 && g.Expires <= a.Now ||", new: "",
	},
	{
		name: "a grant for one tool covers all", file: "internal/core/permission.go",
		old: "if g.Tool != a.Tool ||", new: "if",
	},
	{
		name: "a tool runs by a decision that may be forgotten", file: "internal/runner/drive.go",
		old: "a.at = end\n\t\tif err := a.confirm(ctx); err != nil {", new: "a.at = end\n\t\tif err := error(nil); err != nil {",
		within: 100_000,
	},

	// Runs that are handed back, and calls that nobody waits for.
	{
		name: "an activation that fails counts as one that died", file: "internal/runner/activation.go",
		old: "if permanent(problem) || ", new: "if true || ",
	},
	{
		name: "whoever begins a run does not look whether it was voided", file: "internal/runner/drive.go",
		old: "if err := a.endVoided(ctx); err != nil {", new: "if err := error(nil); err != nil {",
	},

	{
		name: "an append that got no answer is not repeated", file: "internal/runner/journal.go",
		old: "case !errors.Is(err, ErrAmbiguous):", new: "default:",
	},
	{
		name: "a driver that finds its entry under others' does not look who drives", file: "internal/runner/drive.go",
		old: "return a.stillDriven()\n\t\t}\n\t\tif err", new: "return nil\n\t\t}\n\t\tif err",
	},
	{
		name: "no backstop: nothing takes a run from a silent driver but its own message", file: "internal/core/step.go",
		old: "return d.Owner == \"\" || t.in.At-d.Since > t.spec.StaleAfter", new: "return d.Owner == \"\"",
	},
}

package main

// ofWords are noticed by the tests of the rows whose own words they break: what another row's test may notice too.
var ofWords = []mutant{
	// What models are shown.
	{"tools in text have no schemas", around("internal/llm/texttools.format.describe", "t.Parameters = nil\nreturn original(t, server)"), rows{"F3", "F4"}},
	{"the rules do not say how calls are written", statement("internal/llm/texttools.format.sections", "rules f", "rules := \"Call one tool in a reply.\""), rows{"F5"}},
	{"tools are described that cannot be used now", condition(act+"request", "Contains hidden", "false"), rows{"F1"}},
	{"a reminder is told for ever", condition(act+"request", "LifecycleReminder", "h.Turns > 0 && a.agent.Core.NoToolCall.Remind"), rows{"F34"}},
	{"results that models see are empty", around(core+"Spec.Shown", `
		shown := slices.Clone(original(messages))
		for i, m := range shown {
			if len(m.Content) == 1 && m.Content[0].Kind == sdk.ContentToolResult {
				m.Content = slices.Clone(m.Content)
				m.Content[0].Text = "{}"
				shown[i] = m
			}
		}
		return shown`), rows{"F23"}},
	{"few tools are offered where nobody says how many", around("internal/catalog.selector.top", "return min(original(), 3)"), rows{"L8"}},
	{"a run follows the name of its agent's model alone", around("internal/catalog.entry.following", `
		followed, settings := original(spec), spec.Model
		settings.Name = followed.Model.Name
		followed.Model = settings
		return followed`), rows{"F54"}},
	{"conversations are shortened when they are nearly too long", statement("internal/prompt.Fit", "fifth Prompt", "fifth := w.Prompt() / 20"), rows{"F43"}},
	{"a round is made of what is a little too little", statement("internal/prompt.WindowOf", "gate DefaultGate", "gate := 1490"), rows{"L12"}},
	{"a round needs more than the least", statement("internal/prompt.WindowOf", "gate DefaultGate", "gate := 1510"), rows{"L12"}},

	// How replies and requests are read.
	{"the tool of a call is told when the call is whole", around("internal/llm/texttools.filter.announce", "if f.closing() {\noriginal(call)\n}"), rows{"F33"}},
	{"lists of lists are objects", around("internal/llm/texttools.element.plural", "return false"), rows{"F10"}},
	{"all of what cannot be read is told", call("internal/llm/texttools.snippet", "Text", "clip.Text(text, 1<<20)"), rows{"F12"}},
	{"small models deflect for ever", around("sdk.SmallModel", "a := original()\na.Deflecting = 30\nreturn a"), rows{"L29"}},
	{"only connectives join tasks", around("internal/planning.Compound", "return connective.MatchString(request)"), rows{"L63"}},

	// What is sent and told.
	{"questions leave the trace", around(outbox+"Calls", `
		messages, err := original(s, e, f, opened)
		for i := range messages {
			if f.Type == sdk.TypeQuestion {
				messages[i].Event.TraceParent = ""
			}
		}
		return messages, err`), rows{"B20"}},
	{"voids leave the trace", around(outbox+"Voids", `
		messages := original(s, e, f)
		for i := range messages {
			messages[i].Event.TraceParent = ""
		}
		return messages`), rows{"B20"}},
	{"agents far down do not know who called them", around(core+"NewInit", `
		init := original(address, ev)
		if bytes.Count([]byte(ev.Subject), []byte("/c1-")) > 1 {
			init.DelegatedBy = nil
		}
		return init`), rows{"B8"}},
	{"a dead letter does not say what is wrong", around(act+"orphan", "problem := original()\nproblem.Message = \"error\"\nreturn problem"), rows{"B16"}},
	{"requests for permission are for any person", value(step+"ask", "Domains first Domain", "[]string{sdk.HumanDomain}"), rows{"A37"}},
	{"calls that differ in their arguments have one id", around("sdk/wire.CallID", "return original(run, initToken, step, index, tool, nil)"), rows{"T58"}},
	{"live events have no time", value(told+"tell", "Time At", "0"), rows{"T62"}},
	{"tokens are not measured", statement("internal/telemetry.instruments.generated", "tokens Completion", ""), rows{"T69"}},
	{"model calls are measured from the day before", around("internal/telemetry.instruments.generated", "original(ctx, provider, asked, reply, began.Add(-24*time.Hour), err)"), rows{"T69"}},

	// How runs end and go on.
	{"a hook cannot end a run before the model is asked", statement(act+"infer", "end Terminate", ""), rows{"T8", "T9", "T44"}},
	{"hooks are not told what the model replied", around(act+"afterInference", "return nil"), rows{"F56"}},
	{"a run has more time than it is given", statement(step+"start", "Deadline RunDeadline", "h.Deadline = t.in.At + 10*t.spec.RunDeadline"), rows{"T52"}},
	{"a run whose time is over has failed", around(core+"DeadlinePassed", "e := original()\ne.Reason = ReasonError\nreturn e"), rows{"T43"}},
	{"a run that is cancelled has failed", statement(step+"cancelAsked", "Ending ReasonCancelled", `e := Ending{ReasonError, sdk.CodeModel, message, "model_failed"}`), rows{"T10"}},
	{"a worker counts anew", around(core+"Entry.Decode", "err := original(data)\ne.Head.Progress = Progress{}\nreturn err"), rows{"T56"}},
	{"a worker forgets what agents have used", around(core+"Entry.Decode", "err := original(data)\ne.Head.Delegated = 0\nreturn err"), rows{"T56"}},
	{"tools are called that are out of scope", condition("internal/core.admitter.arguments", "hidden", "false"), rows{"T33", "T45"}},
	{"who denies allows", around(step+"enact", `
		if d.Decision == sdk.DecisionDeny {
			d.Decision = sdk.DecisionAllow
		}
		return original(c, d, ev, before)`), rows{"L68"}},
	{"what is allowed always is not kept", statement(step+"grant", "Records", ""), rows{"L68", "L69"}},
}

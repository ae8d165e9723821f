package main

const llm = "internal/llm."

// ofModels are noticed by tests of what is sent to models' servers and read of their answers, and of what schemas check.
var ofModels = []mutant{
	// The client.
	{"a refusal is read as a reply", condition(llm+"endpoint.post", "StatusCode", "true"), of("TestOpenAI_ErrorClasses")},
	{"the key and the prompt go where a server points", value(llm+"limited", "CheckRedirect", "nil"), of("TestProvider_FollowsNoRedirect")},
	{"a redirect is read as a reply", condition(llm+"endpoint.post", "StatusCode", "res.StatusCode < http.StatusBadRequest"), of("TestProvider_FollowsNoRedirect")},
	{"errors show the address that a server points to", call(llm+"vendor.redirected", "clean", "to.String()"), of("TestProvider_FollowsNoRedirect")},
	{"models read markup in escapes", call(llm+"endpoint.post", "SetEscapeHTML", ""), of("TestOpenAI_RequestBodies")},
	{"the query of a base URL is lost", call(llm+"endpoint.post", "String", "(&url.URL{Scheme: e.base.Scheme, Host: e.base.Host, Path: e.base.JoinPath(path).Path}).String()"), of("TestOpenAI_BaseURL")},
	{"requests do not say whose they are", condition(llm+"vendor.runHeader", "sendRun", "true"), of("TestOpenAI_Headers")},
	{"a member of another type loses the reply", condition(llm+"decode", "mistyped", "false"), of("TestOpenAI_ReadsWhatItCan")},

	// Streams.
	{"an event of a stream that is not whole counts", statement(llm+"events", "nil", "_, err := handle(data)\nreturn err"), of("TestOpenAI_BrokenStreams")},
	{"a reply that is there is asked for again when the connection breaks", condition(llm+"events", "EOF whole", "errors.Is(err, io.EOF)"), of("TestProvider_AReplyThatIsThereIsTaken")},
	{"a message that has ended is read on", condition(llm+"Anthropic.Generate", "eventMessageStop", "false"), of("TestAnthropic_ReadsToTheLastEvent")},
	{"an event of a stream begins with the one before", statement(llm+"events", "data -append -handle -byte", ""), of("TestOpenAI_ReadsWhatItCan")},
	{"lines of a stream that end with a carriage return are not read", call(llm+"events", "TrimRight", `bytes.TrimSuffix(line, []byte("\n"))`), of("TestOpenAI_ReadsWhatItCan")},
	{"a stream is read on after its end", condition(llm+"stream", "HasPrefix", "false"), of("TestOpenAI_ReadsWhatItCan")},
	{"a stream that breaks off is a reply", around(llm+"OpenAI.reply", `
		if c.finish == "" {
			c.finish = "stop"
		}
		return original(req, res, c)`), of("TestOpenAI_StreamErrorClasses/ends_early")},
	{"a stream of the Messages protocol that breaks off is a reply", around(llm+"Anthropic.reply", `
		if b.stop == "" && b.started {
			b.stop = "end_turn"
		}
		return original(ctx, req, res, b)`), of("TestAnthropic_AStreamThatEndsEarlyIsNoReply")},
	{"an error within a stream ends the reply", condition(llm+"stream", "Error", "false"), of("TestOpenAI_StreamErrorClasses")},
	{"calls side by side with one index are one call", statement(llm+"partialCall.goesOnWith", "id ID", "return true"), of("TestOpenAI_Streams")},
	{"calls without ids and an index are one call", condition(llm+"partialCall.goesOnWith", "atOnce", "false"), of("TestProvider_FormsOfCalls")},
	{"calls of two tools with one index are one call", condition(llm+"partialCall.goesOnWith", "renamed", "false"), of("TestProvider_FormsOfCalls")},
	{"a call is made without arguments that cannot be read", around(llm+"jsonText.UnmarshalJSON", `
		if err := original(data); err != nil {
			*t = ""
		}
		return nil`), of("TestProvider_FormsOfCalls")},
	{"a call of which a part cannot be read is made without it", statement(llm+"chatFragments.UnmarshalJSON", "unreadCallError", "return err"), of("TestProvider_FormsOfCalls")},
	{"a call of the Messages protocol is made without what cannot be read", condition(llm+"messageEvent.read", "blockTypeToolUse deltaTypeInput", "true"), of("TestProvider_FormsOfCalls")},
	{"a content in parts is an empty one", condition(llm+"chatContent.UnmarshalJSON", "data -parts", "true"), of("TestOpenAI_FormsOfContent")},
	{"as much of a stream is kept as there is", around(llm+"kept.err", "return nil"), of("TestProvider_SendsWithoutEnd/calls")},
	{"a prompt of which nobody says the tokens is free", condition(llm+"counting.Generate", "Prompt", "false"), of("TestRegistry_EstimatesWhatIsNotSaid")},
	{"a reply of which nobody says the tokens is free", condition(llm+"counting.Generate", "Completion", "false"), of("TestRegistry_EstimatesWhatIsNotSaid")},
	{"what is estimated costs nothing", condition(llm+"counting.Generate", "Units", "false"), of("TestRegistry_EstimatesNoPrices")},
	{"a provider's own prices are overruled by an estimate", condition(llm+"counting.Generate", "Units", "true"), of("TestRegistry_EstimatesNoPrices")},
	{"parts of a reply that are estimated are said to be exact", statement(llm+"joined", "Estimated", ""), of("TestContinuing_MakesOneReplyOfItsParts")},
	{"tokens are given back", around("internal/core.transition.cost", `
		before := t.Head.Usage.Prompt
		original(reply)
		t.Head.Usage.Prompt = before + reply.Usage.Prompt`), test{"internal/core", "TestUsage_IsNeverGivenBack"}},
	{"estimates are made more exact by estimates", condition(act+"take", "Estimated reply -replied", "true"), rows{"L5"}},
	{"tokens in a cache are free", value(llm+"blocks.count", "Prompt Input", "*u.Input"), of("TestAnthropic_CacheTokens")},
	{"what was thought for one model is sent to another", condition(llm+"Anthropic.content", "Model modelName", "true"), of("TestAnthropic_Requests")},

	// What went wrong.
	{"nobody hears when a server wants to be asked again", around(llm+"retryAfter", "return 0"), of("TestOpenAI_RetryAfter")},
	{"a server's time to wait counts by the clock here", statement(llm+"retryAfter", "now ParseTime", "now, err := time.Now(), error(nil)"), of("TestOpenAI_RetryAfter")},
	{"a server is waited for as long as it wants", condition(llm+"retrying.Generate", "MaxRetryAfter", "false"), of("TestRetrying_Pauses")},
	{"a model that hangs keeps its fallbacks from being asked", condition(llm+"Alternative.within", "share", "true"), of("TestFallback_LeavesTimeForTheNext")},
	{"a silence of a model is the end of the call", condition(llm+"Alternative.within", "err ctx", "false"), of("TestFallback_LeavesTimeForTheNext")},
	{"a model waits for as long as all of the agent's may take", condition("internal/catalog.timedModels", "err p", "true"), test{"internal/catalog", "TestTimedModels_GiveEachItsTime"}},
	{"fallbacks share the time of one model", around("internal/catalog.chained", "return 1"), test{"internal/catalog", "TestModelTimeout_IsThatOfEachFallback"}},
	{"an empty account is asked again", condition(llm+"vendor.statusFailure", "kind noCredit", "false"), of("TestOpenAI_ErrorClasses")},
	{"another kind of server is one that is away", condition(llm+"vendor.failure", "isModelContent", "false"), of("TestOpenAI_ErrorClasses")},
	{"errors show the key that a server repeats", around(llm+"vendor.clean", "return message"), of("TestOpenAI_ErrorClasses")},
	{"whoever follows a reply reads the failed attempt's beginning", around(llm+"fragments.reset", ""), of("TestRetrying_ResetsFragments")},

	// Prompts.
	{"eight characters of another script are one of ASCII each", statement("internal/prompt.asciiIn", "OnesCount64", ""), test{"internal/prompt", "TestProse_IsOfCharactersOfASCIIAndOthers"}},
	{"a run that is taken up again is as large as it was", statement(core+"State.apply", "History sized before", "s.History = s.History[:s.before:s.before]"), test{"internal/core", "TestRetried_TakesUpWhereTheRunEnded"}},
	{"a prompt is measured in words", around("internal/prompt.AtMost", "return Counter{estimated: true}"), test{"internal/prompt", "TestAtMost_CountsNoFewerThanAnyModel"}},
	{"agents fit into any window", around("internal/catalog.fixedPart", "return 0"), test{"internal/catalog", "TestCheck_RefusesAWindowWithoutRoom"}},
	{"a template without actions may be as long as it wants", call("internal/prompt.Template.Render", "text rendering", "func() (string, error) { return t.text, nil }()"), test{"internal/prompt", "TestTemplate_IsBounded"}},
	{"a rendering goes on where the one before ended", statement("internal/prompt.Template.Render", "r rendering name", ""), test{"internal/prompt", "TestTemplate_RenderingsShareNothing"}},

	// Models that are away.
	{"a worker that dies leaves the runs that it was to wake", statement("internal/worker.outages.heard", "waking", ""), ofOutages("AnotherWorkerGoesOnUnparking")},
	{"a worker that was started since wakes nobody", statement("internal/worker.outages.Back", "looked", ""), ofOutages("TheFirstReplyHasAWorkerLook")},
	{"who asks a model has others wait that need not", condition("internal/worker.outages.Ask", "mine away", "!mine"), ofOutages("WhoDidNotWaitIsNotHeldBackByWhoAsks")},
	{"no run is sent to ask a model", statement("internal/worker.outages.heard", "scouts key", ""), ofOutages("RunsThatWaitAreSentToAsk")},
	{"who parks a run sends none", statement("internal/worker.outages.Park", "scouts key", ""), test{"internal/worker", "TestPark_HasARunSent"}},
	{"each worker sends runs", condition("internal/worker.outages.send", "mine", "$ || true"), ofOutages("OneWorkerSends")},
	{"runs are sent while one asks", condition("internal/worker.outages.send", "err asking", "err != nil || asking && err != nil"), ofOutages("NobodyIsSentWhileOneAsks")},
	{"runs are sent as often however long a model is away", around("internal/worker.outages.pause", "return sends.Nth(1)"), test{"internal/worker", "TestSends_BecomeRare"}},
	{"runs are sent less for each that asked at once", condition("internal/worker.outages.lost", "at Before until", "true"), test{"internal/worker", "TestSends_BecomeRare"}},
	{"runs are sent while nobody is to ask", call("internal/worker.outages.scout", "Until", "time.Duration(0)"), ofOutages("NobodyIsSentWhileNobodyIsToAsk")},
	{"a worker that starts sends no runs", statement("internal/worker.outages.learn", "scouts key", ""), ofOutages("AWorkerThatStartsLooks")},
	{"a worker that starts asks models that nobody is to ask", condition("internal/worker.outages.learn", "away answered told", "false"), ofOutages("AWorkerThatStartsLooks")},
	{"an outage of which a worker learns late is news", condition("internal/worker.outages.learn", "away answered told", "!away && (answered || !answered) && told > 0"), ofOutages("AnAnswerIsNewerThanWhatWasStored")},
	{"the next outage waits for the right to send of the last", call("internal/worker.outages.tell", "EndLease", ""), ofOutages("AnAnswerHasRunsSentSoonInTheNextOutage")},
	{"who sends runs rarely goes on so in the next outage", statement("internal/worker.outages.lost", "begin", ""), test{"internal/worker", "TestSends_BecomeRare"}},

	// Formats of schemas.
	{"formats are checked in every dialect", condition("internal/schema.validator", "assertsFormats", "true"), formats},
	{"addresses with letters of all languages are not checked", condition("internal/schema.assertFormats", "check -value -text", "false"), formats},
	{"a value that is not a text is held against a format", condition("internal/schema.assertFormats", "isText", "true"), formats},
	{"formats are checked that the dialects do not have", statement("internal/schema.assertFormats", "RegisterFormat -check", ""), test{"internal/schema", "TestSchema_ChecksNoOtherFormats"}},
	{"documents have expressions compiled of any size", condition("internal/schema.boundedRegexp", "ok", "false"), test{"internal/schema", "TestSchema_CompilesNoLargeExpressionOfADocument"}},
}

// of is a test of what speaks to models' servers.
func of(name string) test { return test{"internal/llm", name} }

// ofOutages is a test of what workers know of models that are away.
func ofOutages(name string) test { return test{"internal/worker", "TestOutages_" + name} }

var formats = test{"internal/schema", "TestSchema_ChecksTheFormatsOfTheOlderDialects"}

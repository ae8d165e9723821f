package main

// ofWatching are noticed by tests of their packages: who is told of a run while it goes on.
var ofWatching = []mutant{
	{"live events are made for nobody", around(act+"watched", "return true"), test{"test/pipeline", "TestWatch_NobodyIsToldOfRunsThatNobodyWatches"}},
	{"who watches is told nothing until it asks", around(audience+"heard", ""), test{"test/pipeline", "TestWatch_FromTheStartNothingIsMissed"}},
	{"a worker that starts does not ask who watches", around(broker+"AskWatchers", "return nil"), test{"test/pipeline", "TestWatch_AWorkerThatStartsLaterTells"}},
	{"live: always tells only who watches", condition(act+"watched", "Live", "false"), test{"test/pipeline", "TestWatch_LiveAlwaysTellsWhoAnnouncesNothing"}},
	{
		"a run is told of for ever once somebody has watched it", condition(audience+"Watches", "runs", "func() bool { _, known := a.runs[watchedRun{agent, run.Token}]; return known }()"),
		test{"internal/worker", "TestAudience_WatchesWhatWasAnnounced"},
	},
	{"announcements that are not read yet count for nothing", condition(audience+"Watches", "unread", "false"), test{"internal/worker", "TestAudience_InDoubtEverythingIsWatched"}},
	{"announcements that were dropped count for nothing", around(audience+"lost", ""), test{"internal/worker", "TestAudience_InDoubtEverythingIsWatched"}},
	{"any number of runs is kept as watched", condition(audience+"heard", "mostWatched", "false"), test{"internal/worker", "TestAudience_IsBounded"}},
	{"agents of others are kept as watched", condition(audience+"heard", "agents", "false"), test{"internal/worker", "TestAudience_IsBounded"}},
	{"who watches announces it once", around("internal/broker.watching.renew", "<-ctx.Done()"), test{"internal/broker", "TestWatch_IsAnnouncedAndRenewed"}},
	{"what was told before all workers knew is not asked for", condition("internal/broker.watching.renew", "known Since", "false"), test{"internal/broker", "TestWatch_IsAnnouncedAndRenewed"}},
	{"a connection that is lost is one that was closed", around(broker+"flush", "return c.nc.Flush()"), test{"internal/broker", "TestTail_AConnectionThatIsLostIsNotClosed"}},
	{"who waits for a run's end waits on a connection that was closed", condition(broker+"WaitDone", "Closed", "false"), test{"sdk/client", "TestClose_EndsWhatWaits"}},
	{"who listens to a run is not told that the connection was closed", call(broker+"announceEach", "StatusChanged CLOSED", "c.nc.StatusChanged(nats.CONNECTED)"), test{"internal/broker", "TestWatch_WhoWatchesIsToldThatTheConnectionIsClosed"}},
	{"who follows a run asks on a connection that was closed", around("sdk/client.passes", "return original(err) || isClosed(err)"), test{"sdk/client", "TestClose_EndsWhatWaits"}},
	{"a call on a connection that was closed fails without a code", condition("sdk/client.coded", "Closed", "false"), test{"sdk/client", "TestClose_NoCallIsMadeAfterIt"}},
	{"a deadline of the client's own is taken for the caller's", condition("sdk/client.coded", "Unanswered", "false"), test{"sdk/client", "TestClient_SaysThatNobodyAnswers"}},
	{"who waits gives up where NATS is away", condition("sdk/client.Client.waitDone", "isUnavailable", "false"), test{"sdk/client", "TestClient_WaitsWhileNobodyAnswers"}},
	{"an empty id answers the only call that is open", condition("sdk/client.Client.open", "id Call Event", `id == "" || $`), test{"sdk/client", "TestClient_RefusesWhatNamesNothing"}},
	{"an empty id is any call that can be undone", condition("sdk/wire.RunStatus.Undoes", "Call CallPlace", `name == "" || $`), test{"sdk/client", "TestUndoes_RefusesWhatNamesNothing"}},
	{"an agent's name may be a wildcard", condition("sdk/client.checkAgent", "ContainsAny agent", "false"), test{"sdk/client", "TestClient_RefusesRunsThatAreNone"}},
	{"who starts a run does not wait until it is there", around("cmd/agentd/run.awaitBegin", "return nil"), test{"cmd/agentd", "TestRunDetached_EndsWhenTheRunHasBegun"}},
	{"an agent that there is not is one that nobody serves now", condition("cmd/agentd/internal/cli.NotBegun", "Is CodeUnavailable", "false"), test{"cmd/agentd", "TestRunDetached_FailsWhenThereIsNoSuchAgent"}},
	{"who starts a run is not told what it waits for", call("cmd/agentd/run.awaitBegin", "Note Unbegun", ""), test{"cmd/agentd", "TestRunDetached_SaysWhatTheRunWaitsFor"}},
	{"who starts a run is not told that it is refused", condition("cmd/agentd/run.awaitBegin", "refused nil", "false"), test{"cmd/agentd", "TestRunDetached_FailsWhenItsInitIsRefused"}},
	{"a run of an agent that is paused waits for a worker", condition("cmd/agentd/internal/cli.Client.Unbegun", "err pause Paused", "false"), test{"cmd/agentd", "TestRun_ThatHasNotBegun"}},
	{"a run that never begins is waited for", condition("cmd/agentd/internal/follow.follower.end", "ended err", "false"), test{"cmd/agentd", "TestFollow_SaysWhyARunNeverBegan"}},
	{"the mark of a dead letter that was dropped is a new one", condition("cmd/agentd/events.letter", "how", "false"), test{"cmd/agentd/events", "TestTail_TellsAMarkFromADeadLetter"}},
	{"the status of a run is never cut", condition("internal/show.narrow", "Contains group", "slices.Contains(nameColumns, title)"), test{"internal/show", "TestRuns_FitATerminal"}},
}

const (
	audience = "internal/worker.audience."
	broker   = "internal/broker.Conn."
)

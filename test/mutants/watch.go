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

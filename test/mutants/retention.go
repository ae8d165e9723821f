package main

// passes and afterLoss show what the passes of reconcile look at.
var (
	passes    = test{"internal/reconcile", "TestScheduled_LooksAtWhatHasChanged"}
	afterLoss = test{"internal/reconcile", "TestScheduled_LooksAtAllAfterALoss"}
)

// ofRetention are about how long the broker keeps what others need.
var ofRetention = []mutant{
	{"what another store lacks is taken for lost", around("internal/reconcile.Options.right", "return nil"), afterLoss},
	{"commands open any store", around("internal/worker.compared", "return nil"), test{"internal/worker", "TestOpenStore_RefusesAnotherStore"}},
	{"a store without its mark is the right one", call("internal/worker.home.check", "Marked", "true, error(nil)"), test{"internal/worker", "TestOpenOwnStore_KeepsWhatThereIs"}},
	{"a store is noted before its replicas have the mark", call("internal/worker.marked", "Writable", "error(nil)"), test{"internal/worker", "TestOpenOwnStore_WaitsUntilReplicasHaveTheMark"}},
	{"the first store is the right one, whatever it lacks", around("internal/worker.lacking", "return nil"), test{"internal/worker", "TestOpenOwnStore_RefusesAnEmptyStoreWhereRunsHaveEnded"}},
	{"a refusal that cannot be made again passes as made", call("internal/reconcile.pass.refuseAgain", "fails", "error(nil)"), test{"internal/reconcile", "TestRefill_RefusalsThatCannotBeMade"}},
	{"doctor takes the first store for the right one", call("internal/worker.CheckStore", "fits", "error(nil)"), test{"internal/worker", "TestOpenOwnStore_RefusesAnEmptyStoreWhereRunsHaveEnded"}},
	{"a pass goes by the clock of its machine", call("internal/worker.Worker.Reconciling", "MeasureClock", ""), test{"test/pipeline", "TestClosedCalls_LeaveByTheBrokersClock"}},
	{"answers go while calls wait for them", around("internal/broker/provision.Plan.AnswersKept", "return cmp.Or(p.AnswersAge, sdk.DefaultAnswersAge)"), planned("TestApply_AnswersAge")},
	{"provisioning shortens how long a stream keeps messages", around("internal/broker/provision.longerAge", "return b"), planned("TestApply_KeepsLongerAnswers")},
	{"a dead worker is noticed as late as a dead service", around("internal/broker/provision.Plan.consumers", `
		plans := original(s)
		for i := range plans {
			plans[i].ackWait = cmp.Or(p.AckWait, streams.CallWait)
		}
		return plans`), planned("TestAckWait_IsShortForWorkersAndLongForServices")},
	{"services have as little time as workers", around("internal/broker/provision.Plan.consumers", `
		plans := original(s)
		for i := range plans {
			plans[i].ackWait = cmp.Or(p.AckWait, streams.AckWait)
		}
		return plans`), planned("TestAckWait_IsShortForWorkersAndLongForServices")},
	{"small entries are not packed", around("internal/state/packed.pack", "if len(plain) <= worthwhile {\nreturn plain\n}\nreturn original(plain)"), test{"internal/state/packed", "TestStored_IsOfALaterLayoutToWhoeverCannotReadIt"}},
	{"a packed entry may be larger than any entry", call("internal/state/packed.inflate", "LimitReader", "inflater"), test{"internal/state/packed", "TestUnpack_ReadsNoMoreThanAnEntry"}},
	{"entries are packed whatever is asked", around("internal/state/packed.Store.packed", "return pack(entry)"), test{"internal/state/packed", "TestStore_KeepsEntriesPlainIfAsked"}},
	{"who resumes an agent does not wait until its servers know", call("internal/broker.Conn.EndPause", "awaitPause", "error(nil)"), test{"internal/broker", "TestPauseAgent_IsKnownToTheServerThatWorkersAsk"}},
	{"who pauses an agent does not wait until its servers know", call("internal/broker.Conn.PauseAgent", "awaitPause", "error(nil)"), test{"internal/broker", "TestPauseAgent_IsKnownToTheServerThatWorkersAsk"}},
	{"a dry run provisions", around("internal/broker/provision.Planned", "return Apply(ctx, b, p)"), planned("TestApply_KeepsLongerAnswers")},
	{"answers that go too early pass as right", around("internal/config.loader.checkAnswersAge", ""), test{"internal/config", "TestLoad_FindsEveryFaultAtItsPlace"}},
	{"decisions may come after their answers are gone", around("internal/approval.LongestStage", "return 0"), test{"internal/answers", "TestNeeded"}},
	{"a tombstone publishes the end again", around("internal/core.Tombstone", "stone, err := original(last, digest, etag, now)\nstone.Effects, stone.Terminal = last.Effects, last.Terminal\nreturn stone, err"), test{"internal/reconcile", "TestRun_EndsOfPurgedRunsArePublishedByNobody"}},
	{"passes miss the ends of runs whose history is gone", condition("internal/reconcile.pass.terminal", "Purged", "false"), test{"internal/reconcile", "TestRun_EndsOfPurgedRunsArePublishedByNobody"}},
	{"calls leave before their time", around("internal/reconcile.Over", "return original(e, 0, now)"), test{"internal/reconcile", "TestClear_CallsOfRunsThatHaveEnded"}},
	{"calls of runs that go on leave", condition("internal/reconcile.Over", "StatusDone", "true"), test{"internal/reconcile", "TestClear_CallsOfRunsThatHaveEnded"}},
	{"what somebody has not read leaves", around("internal/reconcile.pass.needed", "return false, nil"), test{"internal/reconcile", "TestClear_WhatSomebodyHasNotReadStays"}},
	{"calls that are made meanwhile leave", call("internal/reconcile.pass.clear", "forget", "forget[z](ctx, filter, 1<<62)"), test{"internal/reconcile", "TestClear_LeavesWhatIsPublishedMeanwhile"}},
	{"calls are made again before lost answers are looked for", around("internal/reconcile.pass.answers", "_, err = original(ctx, x, run, e)\nreturn false, err"), test{"internal/reconcile", "TestClear_RunThatIsSetBack"}},
	{"a relay gives up a call that is gone of a run that was taken up again", around("internal/runner.activation.endedSince", "return a.head.Status == core.StatusDone && original(e, by)"), test{"internal/reconcile", "TestRelay_PublishesNoVoidOfAnEarlierGeneration"}},
	{"a service is not told before its void leaves", around("internal/reconcile.pass.through", "return true"), test{"internal/reconcile", "TestClear_WhatSomebodyHasNotReadStays"}},
	{"a call whose answer is about to be read is made again", around("internal/reconcile.pass.settledAnswer", "settled, _, err = original(ctx, agent, d, absorbed)\nreturn settled, false, err"), test{"internal/reconcile", "TestClear_RunThatIsSetBackWithoutWorkers"}},
	{"an answer that is not taken hides a lost timer", around("internal/reconcile.pass.answer", "_, err = original(ctx, subject, absorbed, e)\nreturn true, err"), test{"internal/reconcile", "TestRun_AnswerThatIsNotTakenHidesNothing"}},
	{"services must read what others are told", around("internal/broker.Reader.Reads", "return true"), test{"internal/reconcile", "TestClear_EveryReaderForItself"}},
	{"a worker that stood still makes the call of a run that has ended", condition("internal/runner.activation.carryOutBy", "purgeable", "false"), test{"internal/runner", "TestCarryOut_NotAfterStandingStill"}},
	{"a worker that may not remove calls does not say what to do", condition("internal/reconcile.Clear", "CodePermissionDenied", "false"), test{"cmd/agentd", "TestNATSConfig_OfBeforeLetsWorkersGoOn"}},
	{"each pass looks at all runs", around("internal/reconcile.Options.due", "note, _, err = original(ctx, name, origins)\nreturn note, outdated, err"), passes},
	{"no pass but the first looks at all runs", condition("internal/reconcile.Options.due", "every All", "false"), passes},
	{"an answer that a failover lost is taken for read", around("internal/reconcile.pass.answers", "return false, nil"), test{"internal/reconcile", "TestRun_FailoverToAReplicaThatLags"}},
	{"a store that was emptied is taken for the one that it was", condition("internal/reconcile.Options.due", "marked", "true"), afterLoss},
	{"a stream that was made anew is taken for the one that it was", condition("internal/reconcile.Options.due", "known was Made Last", "false"), afterLoss},
	{"after a loss one pass is enough", around("internal/reconcile.passed.expect", ""), afterLoss},
	{"a store has every mark", around("internal/state/redisstore.Store.Marked", "return true, nil"), test{"internal/state/redisstore", "TestStore_PassesSuite/Marks"}},
	{"passes go on from where they looked, whatever waits for a worker", around("internal/reconcile.pass.open", "return p.limit.UnixMilli(), nil"), test{"internal/reconcile", "TestScheduled_ComesBackToWhatWorkersWereNotThroughWith"}},
	{"passes go on from where they looked, whatever was too young", around("internal/reconcile.pass.leave", "return nil"), test{"internal/reconcile", "TestScheduled_ComesBackToWhatWasTooYoung"}},
	{"runs that answers came for are not looked at", around("internal/reconcile.pass.toldRuns", "return nil"), passes},
	{"histories are removed once a day, however short they are kept", condition("internal/reconcile.Options.due", "History", "false"), test{"internal/reconcile", "TestScheduled_RemovesHistoriesInTime"}},
	{"a call that the broker has lost is taken for removed", call("internal/runner.activation.unpurged", "Purged", "func() (int64, error) { return a.Env.Now(), nil }()"), test{"internal/reconcile", "TestRelay_PublishesTheVoidOfACallThatIsLost"}},
	{"a call that was removed is taken for lost", call("internal/runner.activation.unpurged", "Purged", "func() (int64, error) { return 0, nil }()"), test{"internal/reconcile", "TestRelay_PublishesNoVoidOfACallThatIsGone"}},
	{"calls are removed and nobody is told", around("internal/reconcile.pass.notePurged", "return nil"), test{"internal/reconcile", "TestClear_CallsOfRunsThatHaveEnded"}},
	{"calls are removed before streams are refilled", around("internal/reconcile.pass.refilled", "return true, nil"), test{"internal/reconcile", "TestClear_NotBeforeStreamsAreRefilled"}},
	{"nobody publishes again what the broker has forgotten", around("internal/runner.Runner.RepairSince", "return nil"), simulator},
	{"of what the broker has forgotten only what a run waits for is published again", around("internal/core.Effect.Published", "return false"), simulator},
	{"refusals that the broker has forgotten are not repeated", around("internal/reconcile.pass.refillRefusals", "return nil"), test{"internal/reconcile", "TestRefill"}},
	{"refusals for agents that nobody serves, which the broker has forgotten, are not repeated", around("internal/reconcile.pass.refillUnserved", "return nil"), test{"internal/reconcile", "TestAfterRestarts_NobodyServesTheAgent"}},
	{"a run that has begun is refused because nobody serves its agent any more", around("internal/reconcile.begun", "return false"), test{"internal/reconcile", "TestAfterRestarts_NobodyServesTheAgent"}},
	{"runs that have changed lately are passed over", condition("internal/reconcile.pass.mayMiss", "refillFrom", "true"), test{"internal/reconcile", "TestRefill"}},
	{"nobody notices that the server is another process", around("internal/reconcile.refills.look", "return false"), test{"internal/reconcile", "TestAfterRestarts_WorkerWasNotThere"}},
	{"consumers stay ahead of a stream whose end is lost", around("internal/broker.Conn.putBackIn", "return nil, nil"), test{"internal/broker", "TestPutBack_ConsumersThatAreAheadOfTheirStream"}},
	{"a call that a consumer has in hand is passed over when it is put back", call("internal/broker.Conn.putBackIn", "min", "first"), test{"internal/broker", "TestPutBack_ConsumersThatAreAheadOfTheirStream"}},
	{"something is published behind consumers that are ahead", around("internal/broker.Conn.publishable", "return nil"), test{"internal/broker", "TestPublish_NotBeforeConsumersArePutBack"}},
	{"streams are refilled behind consumers that are ahead", around("internal/broker.Conn.publishable", "return nil"), test{"internal/reconcile", "TestAfterRestarts_ConsumersAreAheadOfTheirStream"}},
	{"what waits for a server is sent before anybody has looked at its consumers", around("internal/broker.Conn.awaitServer", `return "", nil`), test{"internal/broker", "TestPublish_WaitsUntilConsumersArePutBack"}},
	{"a connection that was lost once has all put back since then", around("internal/broker.Conn.cameBack", ""), test{"internal/broker", "TestPublish_AfterTheConnectionWasLost"}},
	{"timers that a server publishes before anybody looks are passed over", condition("internal/broker.Conn.putBackIn", "Whole Timer", "true"), test{"internal/broker", "TestPutBack_TimersThatTheServerMayHavePublished"}},
	{"timers come again for each connection", condition("internal/broker.Conn.lookAtConsumers", "string noted server", "false"), test{"internal/broker", "TestPutBack_TimersThatTheServerMayHavePublished"}},
	{"streams are asynchronous behind a leaf node", condition("internal/broker.Conn.Refillable", "held Clustered resets", "!leader.Clustered(c.js) && c.resets() && (held || true)"), planned("TestApply_BehindALeafNode")},
	{"streams are asynchronous though nobody reconciles", condition("internal/broker/provision.target.laidOut", "Unreconciled Refillable", "!t.Refillable()"), planned("TestApply_PersistMode")},
	{"streams that are there are to be as new ones are made", around("internal/broker/provision.target.persistModeOf", `return "", nil`), planned("TestApply_PersistMode")},
	{"who refills goes on without the lease", around("internal/broker.Hold.While", "return ctx, func() {}"), test{"internal/reconcile", "TestAfterRestarts_WithoutTheLeaseItStops"}},
	{"who has lost the lease of a refilling never has it again", condition("internal/reconcile.refills.take", "Lost", "false"), test{"internal/reconcile", "TestAfterRestarts_WithoutTheLeaseItStops"}},
	{"a lease that is held is not renewed", around("internal/broker.Hold.renew", ""), test{"internal/broker", "TestHold_IsRenewed"}},
	{"a lease that another has is taken from them", condition("internal/broker.Hold.putAgain", "bytes Equal", "true"), test{"internal/broker", "TestHold_IsLost/somebody"}},
	{"a lease that was renewed without an answer is taken for lost", condition("internal/broker.Hold.putAgain", "bytes Equal", "false"), test{"internal/broker", "TestHold_FindsItsOwnRenewal"}},
	{"a driver's message that is gone is taken for there", around("internal/reconcile.pass.replaced", "return false, nil"), test{"internal/reconcile", "TestRun_IsWokenWhenItsMessageIsGone"}},
	{"a stream that has got further since it was set back is read on", around("internal/broker.origin.replaced", "return false"), test{"internal/broker", "TestWatch_ReadsAServerThatHasGotFurtherSinceItWasSetBack"}},
	{"a worker acks what another process of the server has delivered", around("internal/broker.puller.refilled", "return false"), test{"internal/broker", "TestConsume_AcksNothingThatAnotherProcessHasDelivered"}},
	{"streams are asynchronous though nobody asked for it", condition("internal/broker/provision.Plan.ofRuns", "PersistDefault Replicas", "true"), planned("TestApply_PersistMode")},
	{"a persistence that the server does not change goes unsaid", around("internal/broker/provision.otherMode", `return ""`), planned("TestApply_PersistMode")},
	{"a stream at its limit is to take nothing new", around("internal/broker/provision.keepsDiscard", `return ""`), planned("TestApply_LeavesAStreamAtItsLimitAsItIs")},
	{"a limit of each subject goes unsaid", around("internal/broker/provision.verifySubjects", "return nil"), planned("TestVerify_FindsALimitOfEachSubject")},
	{"a full stream keeps a slot", around("internal/broker/leader.Full", "return false"), test{"test/pipeline", "TestFullStream_KeepsNoSlot"}},
	{"replicas are asked for that the server refuses", condition("internal/broker/provision.target.updateStep", "AsyncPersistMode", "false"), planned("TestApply_PersistMode")},
	{"a stream is made anew while workers read", around("internal/broker/rebuild.Options.unused", "return nil"), test{"internal/broker/rebuild", "TestStreams_WaitUntilNoWorkerReads"}},
	{"what is published after a backup is deleted", condition("internal/broker/rebuild.Options.backUp", "LastSequence", "true"), test{"internal/broker/rebuild", "TestStreams_MissNothingThatIsPublishedMeanwhile"}},
	{"workers are not told that streams were made anew", around("internal/broker/rebuild.Options.forgetRefilled", "return nil"), test{"internal/broker/rebuild", "TestStreams_MissNothingThatIsPublishedMeanwhile"}},
	{"a backup of before is restored over what is there", around("internal/broker/rebuild.Options.backUp", "if m, err := readManifest(dir); m != nil { return m, err }; return original(ctx, r, dir)"), test{"internal/broker/rebuild", "TestStreams_KnowWhichBackupsAreOver"}},
	{"a stream that somebody else made is taken for restored", condition("internal/broker/rebuild.Options.holds", "LastSequence", "false"), test{"internal/broker/rebuild", "TestStreams_SayThatSomebodyElseMadeThem"}},
	{"a stream that somebody else made is backed up in place of what was there", call("internal/broker/rebuild.Options.stream", "holds", "error(nil)"), test{"internal/broker/rebuild", "TestStreams_SayThatSomebodyElseMadeThem"}},
	{"calls may leave while they are made", around("internal/config.loader.checkCallsKept", ""), test{"internal/config", "TestLoad_FindsEveryFaultAtItsPlace"}},
}

package main

// ofServers are about servers that are killed, frozen, cut off, made anew or set back, and about how much is asked of them.
var ofServers = []mutant{
	{"a reader whose consumer is gone begins anew", condition("internal/broker.ordered.make", "at", "false"), test{"internal/broker", "TestWatch_ReadsOnWhenItsConsumerIsLost"}},
	{"a reader waits for its consumer as long as the client would", call("internal/broker.ordered.receive", "PullHeartbeat", "jetstream.PullHeartbeat(15*time.Second)"), test{"internal/broker", "TestWatch_ReadsOnWhenItsConsumerIsLost"}},
	{"who asks while a leader is elected is refused", condition("internal/broker/leader.patiently", "known clustered", "known"), test{"internal/broker/leader", "TestPatientlyOnce_WhileTheConnectionChangesServers"}},
	{"a server that is cut off is never left", around("internal/broker.Conn.leave", ""), test{"test/cluster", "TestCutOff_WorkersServicesAndClientsLeave"}},
	{"servers that are away are behind", condition("internal/broker.examined.saw", "Offline heardWithin", "false"), test{"internal/broker", "TestExamined_TellsAwayFromBehind"}},
	{"servers that were never heard of are there", around("internal/broker.unheard", "return r.Active"), test{"internal/broker", "TestExamined_TellsAwayFromBehind"}},
	{"servers that lack much have caught up", condition("internal/broker.examined.saw", "Lag mostBehind", "!r.Current"), test{"internal/broker", "TestExamined_TellsAwayFromBehind"}},
	{"streams with too few replicas are passed over", statement("internal/broker.examined.saw", "few append", ""), test{"test/cluster", "TestDoctor_NamesWhatIsWrongWithTheServers"}},
	{"a pass that fails is put off until the next one is due", around("internal/reconcile.pauses.after", "original(err)\nreturn p.usual"), test{"internal/reconcile", "TestPauses_AFailedPassIsMadeAgainSoon"}},
	{"any stream of that name is the one that was read", around("internal/broker.Bounds.Continues", "return true"), test{"internal/broker", "TestWatch_ReadsAStreamThatWasMadeAnew"}},
	{"a stream that was set back goes on", around("internal/broker.Bounds.Continues", "return before.Created == 0 || b.Created == before.Created"), test{"internal/broker", "TestWatch_ReadsAServerThatWasSetBack"}},
	{"pages are read of any stream", condition("internal/broker.place.follow", "At at", "false"), test{"internal/broker", "TestPlace_KnowsItsStream"}},
	{"a desk reads no stream again", around("internal/desk.reading.end", ""), test{"internal/desk", "TestDesk_ReadsAStreamThatWasMadeAnew"}},
	{"an answer that was refused before its question was read answers it", condition("internal/desk.inbox.take", "unusable sent", "true"), test{"internal/desk", "TestInbox_KeepsQuestionsWhoseAnswerCouldNotBeUsed"}},
	{"nobody sees to what is lost before the next pass", around("internal/reconcile.AfterLoss", "<-ctx.Done()"), test{"internal/reconcile", "TestAfterLoss_TimersOfAStreamThatWasMadeAnewAreArmed"}},
	{"a bench takes a root in use", around("internal/broker.Conn.ownStreams", "return nil, nil"), test{"internal/broker", "TestBorrow_TakesAnUnusedRootAlone"}},
	{"what nobody borrowed is removed", condition("internal/broker.Conn.GiveBack", "by nil", "false"), test{"internal/broker", "TestBorrow_TakesAnUnusedRootAlone"}},
	{"a bench takes runs of others in Redis", condition("internal/state/redisstore.Store.Borrow", "runs len", "false"), test{"internal/state/redisstore", "TestBorrow_TakesAnUnusedRootAlone"}},
	{"keys of others are removed", around("internal/state/redisstore.Store.eachPage", `
		return (&Store{client: s.client, o: Options{Root: "*"}}).eachPageUnbroken(ctx, do)`), test{"internal/state/redisstore", "TestBorrow_TakesAnUnusedRootAlone"}},
	{"an interrupted bench leaves its streams", around("internal/bench.tidy", "return giveBack(ctx)"), test{"cmd/agentd", "TestBench_RemovesWhatItMadeWhenInterrupted"}},
	{"a timer stands for a driver whose message is there", condition("internal/audit.Checker.duplicate", "Timer carried", "head.Timer == in.Due"), test{"internal/audit", "TestChecker_AcceptsATimerThatNobodyNeeds"}},
	{"no timer stands for a driver whose message is gone", around("internal/audit.Checker.carried", "return head.Timer == 0"), test{"internal/audit", "TestChecker_FindsEachViolation"}},
	{"a worker serves before it answers", around("internal/worker.Worker.Run", "if w.Serving != nil {\nw.Serving()\nw.Serving = nil\n}\nreturn original(ctx)"), test{"sdk/worker", "TestRun_AnswersBeforeItSaysThatItServes"}},
	{"a stream is restored only where all servers know each other's subjects", around("internal/broker/rebuild.ask", "m, err := js.Conn().RequestWithContext(ctx, subject, body)\nif err != nil {\nreturn nil, err\n}\nreturn bytes.TrimSpace(m.Data), nil"), test{"internal/broker/rebuild", "TestRestore_WaitsForWhoTakesThePieces"}},
	{"one pass finds all", condition("internal/reconcile.Until", "GoesOn mostPasses", "true"), test{"internal/reconcile", "TestUntil_RepeatsPassesUntilNothingIsFound"}},
	{"each page of runs lists its partition", around("internal/state/natsstore.rests.take", "return rest{}, false"), test{"internal/state/natsstore", "TestStore_ListsAPartitionOnceForAllItsPages"}},
	{"what a page of runs left over is good for ever", condition("internal/state/natsstore.rests.take", "restLasts", "true"), test{"internal/state/natsstore", "TestRests_AreFewAndPass"}},
}

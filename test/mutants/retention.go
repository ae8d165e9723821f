package main

// ofRetention are about how long the broker keeps what others need.
var ofRetention = []mutant{
	{"answers go while calls wait for them", around("internal/broker.Plan.AnswersKept", "return cmp.Or(p.AnswersAge, sdk.DefaultAnswersAge)"), test{"internal/broker", "TestProvision_AnswersAge"}},
	{"provisioning shortens how long a stream keeps messages", around("internal/broker.longerAge", "return b"), test{"internal/broker", "TestProvision_KeepsLongerAnswers"}},
	{"a dead worker is noticed as late as a dead service", around("internal/broker.Conn.consumers", `
		plans := original(p)
		for i := range plans {
			plans[i].ackWait = cmp.Or(p.AckWait, CallWait)
		}
		return plans`), test{"internal/broker", "TestAckWait_IsShortForWorkersAndLongForServices"}},
	{"services have as little time as workers", around("internal/broker.Conn.consumers", `
		plans := original(p)
		for i := range plans {
			plans[i].ackWait = cmp.Or(p.AckWait, AckWait)
		}
		return plans`), test{"internal/broker", "TestAckWait_IsShortForWorkersAndLongForServices"}},
	{"small entries are not packed", around("internal/state/packed.pack", "if len(plain) <= worthwhile {\nreturn plain\n}\nreturn original(plain)"), test{"internal/state/packed", "TestStored_IsOfALaterLayoutToWhoeverCannotReadIt"}},
	{"a packed entry may be larger than any entry", call("internal/state/packed.inflate", "LimitReader", "inflater"), test{"internal/state/packed", "TestUnpack_ReadsNoMoreThanAnEntry"}},
	{"entries are packed whatever is asked", around("internal/state/packed.Store.packed", "return pack(entry)"), test{"internal/state/packed", "TestStore_KeepsEntriesPlainIfAsked"}},
	{"who resumes an agent does not wait until its servers know", call("internal/broker.Conn.ResumeAgent", "awaitPause", "error(nil)"), test{"internal/broker", "TestPauseAgent_IsKnownToTheServerThatWorkersAsk"}},
	{"who pauses an agent does not wait until its servers know", call("internal/broker.Conn.PauseAgent", "awaitPause", "error(nil)"), test{"internal/broker", "TestPauseAgent_IsKnownToTheServerThatWorkersAsk"}},
	{"a dry run provisions", around("internal/broker.Conn.Unprovisioned", "return c.Provision(ctx, p)"), test{"internal/broker", "TestProvision_KeepsLongerAnswers"}},
	{"answers that go too early are no fault", around("internal/config.loader.checkAnswersAge", ""), test{"internal/config", "TestLoad_FindsEveryFaultAtItsPlace"}},
	{"decisions may come after their answers are gone", around("internal/approval.LongestStage", "return 0"), test{"internal/answers", "TestNeeded"}},
}

package main

// Where archives of journals are written and read.
const (
	archives = "internal/state/cold."
	hot      = "internal/state/redisstore."
)

func ofCold(name string) test { return test{"internal/state/cold", name} }

// ofArchives are about journals that leave Redis.
var ofArchives = []mutant{
	{"a journal leaves whatever its archive holds", call(archives+"Store.thin", "holds", "error(nil)"), ofCold("TestStore_ArchiveThatIsNotAsWrittenIsWrittenAgain")},
	{"a journal leaves before its archive is on a disk", condition(archives+"due", "Settled", "false"), ofCold("TestStore_JournalsLeaveInTwoSteps")},
	{"an archive replaces a newer one", around(archives+"Store.publish", `
		m, err := s.newest(ctx, run)
		if err != nil {
			return 0, err
		}
		return original(ctx, run, archive, m.sequence)`), ofCold("TestStore_OlderJournalDoesNotReplaceTheArchive")},
	{"a journal comes back without its blobs", around(hot+"Store.Thaw", "return original(ctx, run, records, nil)"), ofCold("TestStore_JournalThatGoesOnIsBroughtBackAndArchivedAnew")},
	{"an archive outlives the history of its run", around(archives+"Store.drop", "return nil"), ofCold("TestStore_PurgeDeletesTheArchive")},
	{"a journal that has left is taken for a shorter one", condition(hot+"Store.read", "moved most", "true"), ofCold("TestStore_OldReadersRefuse")},
	{"an archive may be there without a note", call(archives+"Store.archive", "Note was", "error(nil)"), ofCold("TestStore_DeathOfAnArchivingProgramWhosePurgeFollows")},
	{"an archive of a run that is purged meanwhile stays", around(archives+"Store.abandon", "return nil"), ofCold("TestStore_ArchiveOfARunThatIsPurgedMeanwhileIsDeleted")},
	{"an archive is believed whatever its hash says", condition(archives+"unpack", "Sum256 content", "false"), ofCold("TestArchive_AlteredIsRefused")},
	{"an archive takes all memory", call(archives+"unpack", "LimitReader", "inflater"), ofCold("TestArchive_BombIsNotInflated")},
	{"a Redis that was set back does not see newer archives", condition(archives+"Store.fetch", "gone ErrNotFound", "false"), ofCold("TestStore_RedisThatWasSetBackReadsANewerArchive")},
	{"a purge that was interrupted leaves an archive", around("internal/reconcile.dropArchive", "return nil"), test{"internal/reconcile", "TestPurge_FinishesWhatWasInterrupted"}},
	{"a run whose end is lost leaves Redis", condition("internal/reconcile.pass.run", "missing Everything", "p.Everything && entry.Head.Status == core.StatusDone && (missing || !missing)"), test{"internal/reconcile", "TestRun_RunWhoseEndIsLostStaysInRedis"}},
	{"journals leave once a day, however soon they may", condition("internal/reconcile.Options.due", "Hot", "false"), test{"internal/reconcile", "TestScheduled_HasJournalsLeaveInTime"}},
	{"a journal leaves Redis an hour after its end", around("internal/config.loader.checkHot", ""), test{"internal/config", "TestLoad_FindsEveryFaultAtItsPlace"}},
}

package main

// ofConsole are noticed by tests of their packages, and of test/pipeline: many runs at once, tags, the index of runs and the console's pages.
var ofConsole = []mutant{
	{"a bulk job asks a run again that it asked before", condition(bulk+"one", "last id", "false"), once},
	{"a bulk job does not look at its runs again", condition(bulk+"one", "still", "true"), once},
	{"a bulk job begins with any number", condition(bulk+"Confirm", "runs Runs", "false"), once},
	{"two programs carry out one bulk job", condition(bulk+"CarryOut", "Held", "false"), once},
	{"a bulk job forgets what became of runs with its program", condition(bulk+"piece", "results nil", "false"), once},
	{"a bulk job that is stopped is so here alone", around(bulk+"Stop", "job.State = Stopped\nreturn nil"), stops},
	{"who stops a bulk job waits for its next piece", around("internal/console/live.jobs.leave", ""), stops},
	{"the history of a run that goes on is removed", condition("internal/reconcile.Purge", "StatusDone", "false"), test{"test/pipeline", "TestBulk_PurgesWhatHasEnded"}},
	{"a run whose history is removed stays in the index", call("internal/reconcile.Purge", "PublishIndexed", ""), test{"cmd/agentd", "TestRunsPurge_RemovesWhatARunDid"}},
	{"a dead letter that a killed bulk job redrove is dealt with by somebody else", condition(bulk+"redrive", "Contains how", "false"), redriven},
	{"a bulk job redrives every dead letter", condition(bulk+"letters", "Matches", "false"), redriven},

	{"a bulk job keeps to no rate", call(bulk+"one", "Pause", ""), pace},
	{"a bulk job redrives at any rate", call(bulk+"redrive", "Pause", ""), pace},
	{"another program carries out a slow bulk job", condition(bulk+"piece", "Until Now lease", "false"), pace},

	{"a message about tags counts each time that it comes", condition(step+"tagAsked", "Tagged Contains", "false"), tags},
	{"new tags replace all others", condition(step+"tagAsked", "tags nil", "true"), tags},
	{"a run has any number of tags", call(step+"tagAsked", "CheckTags", ""), tags},

	{"an old document replaces a new one", condition("internal/index/sqlite.writer.item", "rev Rev", "false"), test{"internal/index/sqlite", "TestIndex_KeepsTheNewestDocumentOfARun"}},
	{"a document that was lost is not published again", around("internal/reconcile.pass.document", "return nil"), documents},
	{"the document of a history that was removed stays", around("internal/reconcile.pass.withdraw", "return nil"), documents},
	{"documents are not sealed", condition("internal/worker.indexer.indexed", "seal nil", "false"), test{"test/pipeline", "TestIndex_IsSealedWhereRunsAre"}},
	{"documents are published that nobody wants", around("internal/worker.indexer.Wanted", "return true"), test{"test/pipeline", "TestIndex_IsNotToldOfAnythingUnlessAskedFor"}},
	{"documents wait for the disk of one server", condition("internal/broker/provision.Plan.Streams", "replicas", "false"), planned("TestIndex_WaitsForNoDiskWhereOneServerHasIt")},
	{"what was kept back of a run is said whatever others have said", condition("internal/worker.indexer.catchUp", "Revision Rev", "false"), test{"internal/worker", "TestIndexer_KeepsWhatOthersSaidMeanwhile"}},
	{"a document takes the place of any other", call("internal/broker.Conn.ReplaceIndexed", "publishIndexed", "c.publishIndexed(i, nats.Header{})"), test{"internal/worker", "TestIndexer_ReplacesWhatItHasSeen"}},
	{"a document of a history that is removed stays", condition("internal/reconcile.pass.document", "Purged nil", "false"), test{"test/pipeline", "TestIndex_SaysHowARunGetsOn"}},
	{"the index of runs never gets replicas", condition("internal/broker/provision.reconcile", "Replicas", "false"), test{"test/cluster", "TestIndex_GetsItsReplicas"}},
	{"workers do not notice an index", around("internal/worker.indexer.look", ""), test{"test/pipeline", "TestIndex_IsNoticedByWorkersThatRun"}},

	{"a page of a long run is made of all its entries", around("internal/state/natsstore.Store.before", "return runner.Version{}, nil"), test{"internal/console", "TestRun_OfManyEntriesHasSmallPages"}},
	{"a console that is read-only acts", condition(console+"acting", "Operator", "true"), test{"internal/console", "TestReadOnly_PublishesNothing"}},
	{"any cookie is a login", around("internal/console.session.admits", "return given != \"\""), test{"internal/console", "TestToken_IsNeededForEverything"}},
	{"pages of other sites use the console", condition(console+"guard", "foreign Check", "false"), test{"internal/console", "TestToken_IsNeededForEverything"}},
	{"who may look decides", condition(console+"deciding", "Domains", "true"), test{"internal/console", "TestReadOnly_PublishesNothing"}},
	{"a login ends in another browser", condition(login+"Finish", "State ConstantTimeCompare", "false"), finish},
	{"a login counts for any nonce", condition(login+"Finish", "Nonce ConstantTimeCompare", "false"), finish},
	{"a login takes any time", condition(login+"Finish", "now Until", "false"), finish},
	{"a login is for ever", condition(login+"read", "now Until", "false"), proof},
	{"who is in no group logs in", condition(login+"read", "held", "false"), proof},
	{"any claim is a principal", condition(login+"read", "Who", "false"), proof},
	{"an approver decides in every domain of a console", around("internal/console.Person.Decides", "return true"), test{"cmd/agentd", "TestConsole_DecidesAsWhoLoggedIn"}},
	{"a console decides for others as itself", around("internal/console/live.logins.Desk", "return l.desk, func() {}, nil"), test{"cmd/agentd", "TestConsole_DecidesAsWhoLoggedIn"}},
	{"runs that people start are the console's", around("internal/console/live.inName.Start", "return c.Conn.Start(ctx, agent, event)"), test{"cmd/agentd", "TestConsole_SteersAsWhoLoggedIn"}},
	{"a page does not say that somebody else answered its request", condition(console+"liveRequest", "said closed", "true"), elsewhere},
	{"a request that is open again stays closed on its page", condition(console+"liveRequest", "said closed", `closed == "" || $`), elsewhere},
	{"the callout lets in who decides nothing", condition("cmd/agentd/natscallout.finder", "len Domains", "false"), test{"cmd/agentd", "TestCallout_HoldsALoginToItsName"}},
	{"the callout gives domains that a group does not have", call("cmd/agentd/natscallout.finder", "Approver", "accounts.Approver(plan, accounts.Member{Name: who.Who})"), test{"cmd/agentd", "TestCallout_HoldsALoginToItsName"}},
	{"programs need no token", around("internal/httpguard.Guesses.Bears", "return true, nil"), test{"internal/console", "TestPrograms_NeedTheToken"}},
	{"an agent that is paused goes on", around("internal/console/live.source.PauseAgent", "return nil"), test{"internal/console", "TestAgent_IsPausedAndResumed"}},
	{"who saw a request is not told", statement(console+"ofRun", "Seen append", ""), test{"internal/console", "TestDecide_IsOnWhatWasShown"}},
	{"a request leads to another message", condition("internal/console.asker", "Held request", "false"), test{"internal/console", "TestRequest_LeadsToItsMessage"}},
	{"a question of a tool leads to no message", condition("internal/console.asker", "CallQuestion request", "false"), test{"internal/console", "TestAsker_IsACallOfTheConversation"}},
	{"specs of runs that have ended are in use", call("internal/console.agentPage.specs", "mustFilter", "index.Filter{}"), test{"internal/console", "TestAgent_HasTheSpecsInUse"}},
	{"any number of pages follow what happens at once", condition("internal/console.hub.enter", "open maxStreams", "false"), polling},
	{"a page that asks from time to time does not say so", statement(console+"begin", "pause pollPause", ""), polling},
	{"a page that asks from time to time is told all anew", condition(console+"catchUp", "Index Revision", "false"), polling},
	{"what leads to runs that are new forgets their order", call("internal/console.followed.flush", "listAddress sort", `listAddress(f.filter.String(), "", "")`), test{"internal/console", "TestList_KeepsItsOrder"}},
	{"all runs are read to list the newest", around("internal/state/natsstore.Store.Recent", "return false, nil"), newest},
	{"a history that was removed lately comes before runs that changed", condition("internal/index/find.Finder.recent", "Changed since", "true"), newest},
	{"pages of a list by duration measure up to different times", condition("internal/index.Query.Position", "err Sort SortDuration", "false"), test{"internal/index", "TestMemory_SortsByDurationAsOfTheFirstPage"}},
	{"a list by duration is in another order", condition("internal/index/sqlite.Index.page", "Order SortDuration", "false"), test{"internal/index/sqlite", "TestIndex_AnswersAsTheFiltersSay"}},
	{"a console under a path leads elsewhere", around("internal/console.redirecting.WriteHeader", "w.ResponseWriter.WriteHeader(status)"), test{"internal/console", "TestBase_EverythingIsUnderIt"}},
	{"a console is under any path", condition("internal/console.CheckBase", "MatchString", "false"), test{"internal/console", "TestCheckBase"}},
	{"logins of a console under a path count for the whole host", value("internal/console.console.setCookies", "Path", `"/"`), test{"internal/console", "TestBase_LoginsAreKeptThere"}},
	{"a timeline does not say what was sent again", around("internal/console.tried", ""), spans},
	{"a timeline does not say what was taken over", condition("internal/console.marks", "Takeovers KindTakenOver", "false"), spans},
	{"a timeline does not have what called agents did", around("internal/console.console.children", "return nil"), test{"internal/console", "TestTimeline_ShowsWhatCalledAgentsDid"}},
	{"a run that cannot be read is an error of the console's own", around("internal/console/live.unreadable", "return err"), test{"internal/console", "TestRun_SaysWhichEntryCannotBeRead"}},
	{"a page is not told what it missed", condition("internal/console.followed.run", "Changed since", "false"), test{"internal/console", "TestLive_SendsWhatChanges"}},
}

const (
	bulk    = "internal/bulk.Bulk."
	console = "internal/console.console."
	login   = "internal/login.Provider."
)

// What notices several.
var (
	finish    = test{"internal/login", "TestFinish_EndsItsOwnLoginAlone"}
	proof     = test{"internal/login", "TestPerson_RefusesWhatIsNoProof"}
	once      = test{"test/pipeline", "TestBulk_CancelsEachRunOnce"}
	redriven  = test{"test/pipeline", "TestBulk_RedrivesEachLetterOnce"}
	spans     = test{"internal/console", "TestSpans_MarkRetriesAndTakeovers"}
	pace      = test{"internal/bulk", "TestCarryOut_KeepsToItsRate"}
	elsewhere = test{"internal/console", "TestRequest_SaysWhenItIsNoLongerOpen"}
	polling   = test{"internal/console", "TestLive_FurtherPagesAskFromTimeToTime"}
	stops     = test{"internal/console", "TestBulk_StopsAndGoesOn"}
	tags      = test{"internal/core", "TestTags_ChangeByTheirKeys"}
	newest    = test{"internal/index/find", "TestNewest_ReadsTheStoreFromItsEnd"}
	documents = test{"test/pipeline", "TestIndex_SaysHowARunGetsOn"}
)

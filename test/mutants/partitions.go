package main

// onBroker, planned and inStore are tests of streams that are divided.
func onBroker(name string) test { return test{"internal/broker", name} }
func planned(name string) test  { return test{"internal/broker/provision", name} }
func inStore(name string) test  { return test{"internal/state/natsstore", "TestDivided_" + name} }

// ofPartitions are about streams that are divided.
var ofPartitions = []mutant{
	{"one partition is divided into one", condition("internal/broker/streams.Layout.Zones", "l n", "l.n < 1"), planned("TestLayout_HasEachSubjectOnOneStream")},
	{"a stream has the runs of its neighbour", around("internal/broker/streams.Layout.index", "i, ok = original(tokens)\nreturn (i + 1) % l.n, ok"), planned("TestLayout_HasEachSubjectOnOneStream")},
	{"marks of parked runs are where their agents' names say", condition("internal/broker/streams.Layout.index", "LeaseToken ParkedToken", "false"), planned("TestLayout_HasWhatBelongsToNoRunOnTheFirstStream")},
	{"the number of partitions is nowhere written down", around("internal/broker/streams.Layout.Metadata", "return nil"), planned("TestPartitions_AreForEver")},
	{"another number of partitions is provisioned beside the first", around("internal/broker/provision.target.laidOut", `
		laid, _, err = original(ctx, p)
		return laid, nil, err`), planned("TestPartitions_AreForEver")},
	{"of two that provision at once both are right", around("internal/broker/provision.sameLayout", "return nil"), planned("TestPartitions_AreForEver")},
	{"where a stream is lost, partitions are", around("internal/broker.Conn.layoutThere", `
		s, err := c.js.Stream(ctx, streams.Name(c.subjects, streams.Start))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return streams.Layout{}, false, nil
		}
		if err != nil {
			return streams.Layout{}, false, err
		}
		l, err = streams.LayoutIn(s.CachedInfo().Config)
		return l, err == nil, err`), planned("TestPartitions_OutliveTheLossOfAStream")},
	{"a reader of a divided zone reads its first stream", around("internal/broker.Conn.zones", `
		zones, err := original(ctx, z, filters...)
		return zones[:min(len(zones), 1)], err`), onBroker("TestPartitions_ReadsMerge")},
	{"a timer is published for the undivided stream", around("internal/broker.Conn.streamFor", "return streams.Name(c.subjects, streams.Layout{}.ZoneOf(subject)), nil"), onBroker("TestPartitions_TimersFireOnAllOfThem")},
	{"every dead letter of a divided stream is forged", condition("internal/broker/streams.Whole", "err", "true"), onBroker("TestPartitions_DeadLettersSayTheirStream")},
	{"a listing ends with the first stream", around("internal/state/natsstore.divided.Runs", "return d.parts[0].Runs(ctx, cursor, limit)"), inStore("ListsOverTheEndsOfStreams")},
	{"recent runs are those of the first stream", around("internal/state/natsstore.recent", "return original(ctx, parts[:1], each)"), inStore("TellsOfRecentRuns")},
	{"recent runs are looked for until one stream is read", statement("internal/state/natsstore.search.piece", "since beginning told", ""), inStore("TellsOfRunsOfTheLongestStream")},
	{"only the first stream is asked whether it takes writes", around("internal/state/natsstore.divided.Writable", "return d.parts[0].Writable(ctx)"), inStore("IsWritableWhereAllOfItIs")},
	{"only the first stream is marked", around("internal/state/natsstore.divided.Marked", "return d.parts[0].Marked(ctx, name, mark)"), inStore("IsMarkedWhereAllOfItIs")},
	{"workers may purge one stream of journals", around("internal/accounts.rights.streams", "return original(z)[:1]"), test{"cmd/agentd", "TestNATSConfig_AttackTable/four_partitions"}},
	{"desks follow the first stream of calls", around("internal/broker.Conn.followable", `
		zones, err := original(ctx, opening, z, filter)
		return zones[:min(len(zones), 1)], err`), onBroker("TestPartitions_DesksFollowAllOfThem")},
	{"workers do not tell desks that a zone is divided", around("internal/broker.Conn.isDivided", "return false"), onBroker("TestPartitions_DesksFollowAllOfThem")},
	{"a service reads the first of its consumers", around("internal/broker.Conn.Reading", `
		all, err := original(ctx, refs...)
		return all[:min(len(all), 1)], err`), onBroker("TestPartitions_ServicesFindTheirConsumers")},
	{"consumers do not say how many they are", around("internal/broker/provision.consumerPlan.config", `
		config := original()
		config.Metadata = nil
		return config`), onBroker("TestPartitions_ServicesFindTheirConsumers")},
	{"whatever stream stores a message is right", around("internal/broker.Conn.strayed", "return nil"), onBroker("TestPartitions_ControlsNeedNotKnow")},
	{"control messages are expected on the undivided stream", around("internal/broker.Conn.expected", "return streams.Name(c.subjects, streams.Layout{}.ZoneOf(subject)), nil"), onBroker("TestPartitions_ControlsNeedNotKnow")},
	{"a pause holds the calls of the first stream", around("internal/broker.Conn.beginnings", `
		refs, err := original(ctx, agent)
		return refs[:min(len(refs), 2)], err`), onBroker("TestPartitions_APauseIsOfAllOfThem")},
	{"a service that reads some of its calls is not found", around("internal/broker.Conn.PartlyRead", "return nil, nil"), onBroker("TestPartitions_WhoReadsFewerIsFound")},
	{"a service may read the first of its consumers", around("internal/accounts.rights.consume", `
		all := original(ref)
		return all[:min(len(all), 3)]`), test{"cmd/agentd", "TestNATSConfig_SufficesForEveryRole/four_streams_for_calls"}},
	{"calls are removed from the first stream", around("internal/broker/streams.Layout.OfRun", "return l.Zones(z)[0]"), test{"internal/reconcile", "TestPartitions_AreAllPassedOver"}},
	{"a pass looks at the timers of the first stream only", condition("internal/reconcile.pass.zoneOf", "Name stream", "$ && z != \"TMR_3\""), test{"internal/reconcile", "TestPartitions_AreAllPassedOver"}},
}

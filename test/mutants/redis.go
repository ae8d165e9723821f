package main

func ofRedis(name string) test { return test{"internal/state/redisstore", name} }

// ofReplicas are about replicas of Redis that are waited for.
var ofReplicas = []mutant{
	{"an entry counts that too few replicas have", condition(hot+"Store.replicated", "have Replicas", "false"), ofRedis("TestStore_FailoverLosesNothingThatReplicasWereWaitedFor")},
	{"an entry counts though waiting was refused", condition(hot+"Store.commit", "err nil", "false"), ofRedis("TestWritable_AsksReplicas")},
	{"a blob counts that no replica has", condition(hot+"Store.PutBlob", "Replicas", "true"), ofRedis("TestStore_WaitsForReplicas")},
	{"a replica that stands still takes writes", around(hot+"Store.replicasConfirm", "return nil"), ofRedis("TestWritable_AsksReplicas")},
	{"a worker does not wait for replicas", around("sdk/worker.File.Options", "o, err := original()\no.RedisReplicas = 0\nreturn o, err"), test{"cmd/agentd", "TestServe_WaitsForReplicasOfRedis"}},
	{"a command does not wait for replicas", around("internal/setup.StoreOptions", "o, err := original(cfg)\no.RedisReplicas = 0\nreturn o, err"), test{"cmd/agentd", "TestServe_WaitsForReplicasOfRedis"}},
	{"the store is not told of replicas", around("internal/worker.openStore", "o.RedisReplicas = 0\nreturn original(ctx, conn, o)"), test{"cmd/agentd", "TestServe_WaitsForReplicasOfRedis"}},
}

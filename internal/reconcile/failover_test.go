package reconcile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"agentd/internal/broker/streams"
	"agentd/internal/reconcile"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// pair is a server with a replica, which a sentinel puts in its place when it is gone.
type pair struct {
	rig                       *rig
	server, replica, sentinel *redistest.Server
}

// replicated has the store behind a sentinel.
func (p *pair) replicated(r *rig) {
	p.rig = r
	p.server = redistest.StartServer(r.t, "--repl-diskless-sync-delay", "0")
	p.replica = redistest.StartReplica(r.t, p.server)
	p.sentinel = redistest.StartSentinel(r.t, "journal", p.server)
	store, _, err := redisstore.Open(r.t.Context(), "redis+sentinel://"+p.sentinel.Addr()+"/journal", redisstore.Options{})
	r.check("open redis", err)
	r.t.Cleanup(func() { r.check("close redis", store.Close()) })
	r.store = store
}

// ask sends a command to a server.
func (p *pair) ask(server *redistest.Server, command ...any) any {
	p.rig.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	answer, err := c.Do(p.rig.context(), command...).Result()
	p.rig.check("ask redis", err)
	p.rig.check("close", c.Close())
	return answer
}

// part has the replica get nothing of what is written from now on. It has all that was written before.
func (p *pair) part() {
	p.rig.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: p.server.Addr()})
	p.rig.check("write", c.Set(p.rig.context(), "last", "", 0).Err())
	n, err := c.Wait(p.rig.context(), 1, patience).Result()
	if err != nil || n != 1 {
		p.rig.t.Fatalf("%d replicas have it all, %v", n, err)
	}
	p.replica.Pause() // so that it does not come back
	p.rig.check("close its connection", c.ClientKillByFilter(p.rig.context(), "TYPE", "replica").Err())
	p.rig.check("close", c.Close())
}

// fail has the server die, and the replica take its place. The sentinel is impatient from now on only: a server that is merely slow stays
// in its place.
func (p *pair) fail() {
	p.rig.t.Helper()
	for name, value := range map[string]string{"down-after-milliseconds": "500", "failover-timeout": "2000"} {
		p.ask(p.sentinel, "SENTINEL", "SET", "journal", name, value)
	}
	p.server.Kill()
	p.replica.Resume()
	p.rig.await("the replica takes its place", func() bool {
		info, _ := p.ask(p.replica, "INFO", "replication").(string)
		return strings.Contains(info, "role:master")
	})
	p.rig.await("the store answers", func() bool {
		_, _, err := p.rig.store.Runs(p.rig.context(), "", 1)
		return err == nil
	})
}

// A failover to a replica that lags loses what Redis confirmed last. That is found, told and repaired: answers are delivered again, calls and
// ends are not published again, and the run of which nothing is left ends as its agent says.
func TestRun_FailoverToAReplicaThatLags(t *testing.T) {
	t.Parallel()
	var p pair
	r := start(t, p.replicated)
	further, ended, untouched := r.begin("add add"), r.begin("add"), r.begin("add")
	for _, b := range []begun{further, ended, untouched} {
		r.waiting(b, 1)
	}
	r.settled()
	p.part()
	r.answer(r.call(further))
	r.waiting(further, 2)
	r.answer(r.call(ended))
	r.done(ended)
	unknown := r.begin("add")
	r.waiting(unknown, 1)
	r.settled()

	p.fail()
	for _, b := range []begun{further, ended, untouched} {
		r.waiting(b, 1)
	}
	if n := r.head(unknown).Round; n != 0 {
		t.Fatalf("the replica knows the run that began last, in step %d", n)
	}
	_, all := r.pass()
	want := map[reconcile.Kind]int{reconcile.AnswerLost: 2, reconcile.RunLost: 1, reconcile.CallOrphaned: 1}
	if diff := cmp.Diff(want, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	r.waiting(further, 2)
	r.settled()
	r.nothing()

	r.answer(r.call(further))
	r.answer(r.call(untouched))
	for b, want := range map[begun]sdk.Code{further: "", ended: "", untouched: "", unknown: sdk.CodeStateLost} {
		if code := r.done(b); code != want {
			t.Errorf("%s ended with %q, want %q", b.subject, code, want)
		}
	}
	r.settled()
	r.nothing()
	for _, once := range []struct {
		zone streams.Zone
		kind wire.Kind
		want int
	}{
		{streams.Out, wire.KindOut, 5},
		{streams.Done, wire.KindDone, 4},
		{streams.DLQ, wire.KindDLQ, 2}, // the call and the end that were to be published again, which are in conflict with the first ones
	} {
		stored := r.messages(once.zone, once.kind)
		for subject, n := range stored {
			if n != 1 {
				t.Errorf("%s is there %d times", subject, n)
			}
		}
		if len(stored) != once.want {
			t.Errorf("%d of %s, want %d: %v", len(stored), once.kind, once.want, stored)
		}
	}
}

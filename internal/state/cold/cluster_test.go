package cold

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/internal/state/storetest"
)

// TestStore_JournalsLeaveACluster, whose nodes refuse keys of several slots in one script.
func TestStore_JournalsLeaveACluster(t *testing.T) {
	t.Parallel()
	srv := start(t)
	node := redistest.StartServer(t, "--cluster-enabled", "yes")
	c := redis.NewClient(&redis.Options{Addr: node.Addr()})
	t.Cleanup(func() { check(t, "close client", c.Close()) })
	check(t, "assign slots", c.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	storetest.Await(t, "cluster", func(ctx context.Context) bool {
		return strings.Contains(c.ClusterInfo(ctx).Val(), "cluster_state:ok")
	})
	one := srv.fresh(t)
	hot, _, err := redisstore.Open(t.Context(), node.URL()+","+node.Addr(), redisstore.Options{Root: one.subjects.Root()})
	check(t, "open redis", err)
	t.Cleanup(func() { check(t, "close redis", hot.Close()) })
	s := New(hot, one.js, one.stream, one.subjects)
	whole := written(t, s, trip, 5)
	s.left(t, trip)
	intact(t, s, trip, whole)
	whole = append(whole, storetest.AppendN(t, s, trip, whole[4].Version, 1)...)
	intact(t, s.Store, trip, whole)
	s.left(t, trip)
	storetest.Purged(t, s, trip, whole[5].Version)
	if n := s.messages(t, trip); n != 0 {
		t.Errorf("%d archives are left", n)
	}
}

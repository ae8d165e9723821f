package counts

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"agentd/internal/broker"
	"agentd/internal/capacity"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/sdk/wire"
)

// random is text that nothing compresses well.
func random(bytes int) func() string {
	return func() string {
		raw := make([]byte, bytes)
		if _, err := rand.Read(raw); err != nil {
			panic(err)
		}
		return base64.StdEncoding.EncodeToString(raw)[:bytes]
	}
}

// The figures that agentd capacity reckons with are what runs cost, however many turns they have and however much they say: messages and
// subjects exactly, bytes within a tenth.
func TestCapacity_IsWhatRunsCost(t *testing.T) {
	t.Parallel()
	for _, of := range []struct{ turns, said int }{{1, 300}, {3, 10}, {3, 1000}, {10, 300}} {
		for _, onRedis := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d turns of 3 times %d bytes, redis %t", of.turns, of.said, onRedis), func(t *testing.T) {
				t.Parallel()
				weigh(t, of.turns, of.said, onRedis)
			})
		}
	}
}

func weigh(t *testing.T, turns, said int, onRedis bool) {
	t.Helper()
	memory := func() float64 { return 0 }
	open := jetStream
	if onRedis {
		open = func(t *testing.T, _ *broker.Conn, _ *commands) runner.Store {
			t.Helper()
			options, err := redis.ParseURL(redistest.Start(t))
			check(t, err)
			client := redis.NewClient(options)
			memory = func() float64 { return used(t, client) }
			store := redisstore.New(client, redisstore.Options{})
			t.Cleanup(func() { check(t, store.Close()) })
			return store
		}
	}
	s := start(t, open, talk{turns, random(said), random(said), random(said), true})
	s.run("the first, which connects and learns")
	// What a slow machine delivers again does not count, and what a run costs is in each round.
	var wrong []string
	for _, names := range []string{"abcdefghij", "klmnopqrst", "ABCDEFGHIJ"} {
		if wrong = s.round(strings.Split(names, ""), memory, turns, said, onRedis); len(wrong) == 0 {
			return
		}
		t.Logf("another round, because of %q", wrong)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// round has runs with names, and says what costs something else than is reckoned with.
func (s *system) round(names []string, memory func() float64, turns, said int, onRedis bool) (wrong []string) {
	s.t.Helper()
	s.settle()
	before, empty := s.kept(), memory()
	var keys []wire.RunKey
	for _, name := range names {
		keys = append(keys, s.run("run "+name))
	}
	s.settle()
	each := float64(len(keys))
	close := func(what string, want, got float64) {
		s.t.Logf("%s: %.0f bytes, reckoned %.0f", what, got, want)
		if math.Abs(got-want) > want/10 {
			wrong = append(wrong, fmt.Sprintf("%s: a run has %.0f bytes, and %.0f are reckoned with", what, got, want))
		}
	}
	after := s.kept()
	for zone, want := range capacity.Run(turns, said, onRedis) {
		a, b := after[zone], before[zone]
		got := capacity.Cost{
			Writes: (a.Writes - b.Writes) / each, Messages: (a.Messages - b.Messages) / each,
			Subjects: (a.Subjects - b.Subjects) / each, Bytes: (a.Bytes - b.Bytes) / each,
		}
		s.t.Logf("%-6s %+v, reckoned %+v", zone, got, want)
		if got.Writes != want.Writes || got.Messages != want.Messages || got.Subjects != want.Subjects {
			wrong = append(wrong, fmt.Sprintf("%s: a run costs %+v, and %+v is reckoned with", zone, got, want))
		}
		close(zone, want.Bytes, got.Bytes)
	}
	if onRedis {
		close("the journal in Redis", capacity.Journal(turns, said), (memory()-empty)/each)
	}
	for _, key := range keys {
		check(s.t, reconcile.Purge(s.t.Context(), s.control, s.packed.(state.Store), key))
	}
	left := (s.kept()[capacity.Runs].Bytes - before[capacity.Runs].Bytes) / each
	if onRedis {
		left = (memory() - empty) / each
	}
	close("a tombstone", capacity.Tombstone(onRedis), left)
	return wrong
}

// kept is what each stream has taken, and has still.
func (s *system) kept() map[string]capacity.Cost {
	s.t.Helper()
	all := map[string]capacity.Cost{}
	for info := range s.control.JetStream().ListStreams(s.t.Context()).Info() {
		_, zone, _ := strings.Cut(info.Config.Name, "_")
		has := info.State
		all[zone] = capacity.Cost{
			Writes: float64(has.LastSeq), Messages: float64(has.Msgs), Subjects: float64(has.NumSubjects), Bytes: float64(has.Bytes),
		}
	}
	return all
}

// used is the memory of all keys of a Redis.
func used(t *testing.T, client *redis.Client) float64 {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	check(t, err)
	total := int64(0)
	for _, key := range keys {
		size, err := client.MemoryUsage(t.Context(), key, 0).Result()
		check(t, err)
		total += size
	}
	return float64(total)
}

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// vandal damages what a store holds of a run.
type vandal interface {
	// cut removes an entry from the middle of the journal.
	cut(ctx context.Context, run wire.RunKey) error
	// scribble replaces the first entry by bytes that do not make an entry; alter, by an entry with another content.
	scribble(ctx context.Context, run wire.RunKey) error
	alter(ctx context.Context, run wire.RunKey) error
	// behead appends something that is not an entry at all.
	behead(ctx context.Context, run wire.RunKey) error
	// lose removes the run's blobs.
	lose(ctx context.Context, run wire.RunKey) error
}

// natsVandal works on the journal's stream.
type natsVandal struct{ conn *broker.Conn }

func (v natsVandal) stream(ctx context.Context, subject string) (jetstream.Stream, error) {
	layout, err := v.conn.Layout(ctx)
	if err != nil {
		return nil, err
	}
	return v.conn.JetStream().Stream(ctx, streams.Name(v.conn.Subjects(), layout.ZoneOf(subject)))
}

// each calls do with the messages on a subject.
func (v natsVandal) each(ctx context.Context, filter string, do func(jetstream.Stream, broker.Stored) error) error {
	stream, err := v.stream(ctx, filter)
	if err != nil {
		return err
	}
	return v.conn.Scan(ctx, streams.Run, filter, 1, func(m broker.Stored) (bool, error) { return true, do(stream, m) })
}

func (v natsVandal) cut(ctx context.Context, run wire.RunKey) error {
	n := 0
	return v.each(ctx, v.conn.Subjects().Journal(run), func(s jetstream.Stream, m broker.Stored) error {
		if n++; n == 1 {
			return s.DeleteMsg(ctx, m.Sequence)
		}
		return nil
	})
}

// rewrite puts the journal's messages anew, the first one changed.
func (v natsVandal) rewrite(ctx context.Context, run wire.RunKey, change func([]byte) []byte) error {
	n := 0
	return v.each(ctx, v.conn.Subjects().Journal(run), func(s jetstream.Stream, m broker.Stored) error {
		if n++; n == 1 {
			m.Data = change(m.Data)
		}
		copied := nats.Header{}
		for name, values := range m.Headers {
			if strings.HasPrefix(name, "Agentd-") {
				copied[name] = values
			}
		}
		_, err := v.conn.JetStream().PublishMsg(ctx, &nats.Msg{Subject: m.Subject, Data: m.Data, Header: copied})
		return errors.Join(err, s.DeleteMsg(ctx, m.Sequence))
	})
}

func scribbled([]byte) []byte { return []byte("{not json") }

func altered(entry []byte) []byte {
	return []byte(strings.Replace(string(entry), `"rev":1,`, `"rev":1, `, 1)) // means the same, and is not what was hashed
}

func (v natsVandal) scribble(ctx context.Context, run wire.RunKey) error {
	return v.rewrite(ctx, run, scribbled)
}

func (v natsVandal) alter(ctx context.Context, run wire.RunKey) error {
	return v.rewrite(ctx, run, altered)
}

func (v natsVandal) behead(ctx context.Context, run wire.RunKey) error {
	// Without a header of the store's it would be passed over, as a message that the store did not write.
	gone := &nats.Msg{Subject: v.conn.Subjects().Journal(run), Data: []byte("gone"), Header: nats.Header{"Agentd-Rev": {"none"}}}
	_, err := v.conn.JetStream().PublishMsg(ctx, gone)
	return err
}

func (v natsVandal) lose(ctx context.Context, run wire.RunKey) error {
	return v.each(ctx, v.conn.Subjects().Blob(run, ">"), func(s jetstream.Stream, m broker.Stored) error {
		return s.DeleteMsg(ctx, m.Sequence)
	})
}

// redisVandal works on the keys of a Redis.
type redisVandal struct{ client *redis.Client }

func (v redisVandal) list(run wire.RunKey) string {
	return fmt.Sprintf("agentd:{p%s}:l:%s", run.Partition, run.Token)
}

func (v redisVandal) cut(ctx context.Context, run wire.RunKey) error {
	first, err := v.client.LIndex(ctx, v.list(run), 0).Result()
	if err != nil {
		return err
	}
	return v.client.LRem(ctx, v.list(run), 1, first).Err()
}

func (v redisVandal) rewrite(ctx context.Context, run wire.RunKey, change func([]byte) []byte) error {
	first, err := v.client.LIndex(ctx, v.list(run), 0).Result()
	if err != nil {
		return err
	}
	version, entry, _ := strings.Cut(first, "\n")
	return v.client.LSet(ctx, v.list(run), 0, version+"\n"+string(change([]byte(entry)))).Err()
}

func (v redisVandal) scribble(ctx context.Context, run wire.RunKey) error {
	return v.rewrite(ctx, run, scribbled)
}

func (v redisVandal) alter(ctx context.Context, run wire.RunKey) error {
	return v.rewrite(ctx, run, altered)
}

func (v redisVandal) behead(ctx context.Context, run wire.RunKey) error {
	return v.client.LSet(ctx, v.list(run), -1, "gone").Err()
}

func (v redisVandal) lose(ctx context.Context, run wire.RunKey) error {
	keys, err := v.client.Keys(ctx, fmt.Sprintf("agentd:{p%s}:b:%s:*", run.Partition, run.Token)).Result()
	if err != nil {
		return err
	}
	return v.client.Del(ctx, keys...).Err()
}

// onStores runs a test on both stores.
func onStores(t *testing.T, test func(t *testing.T, start func(o harness.Options) (*harness.Harness, vandal))) {
	t.Run("jetstream", func(t *testing.T) {
		t.Parallel()
		test(t, func(o harness.Options) (*harness.Harness, vandal) {
			h := harness.Start(t, o)
			return h, natsVandal{h.Conn()}
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.StartServer(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		store := redisstore.New(client, redisstore.Options{})
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, func(o harness.Options) (*harness.Harness, vandal) {
			o.OpenStore = func(*broker.Conn) runner.Store { return store }
			return harness.Start(t, o), redisVandal{client}
		})
	})
}

// A journal that cannot be read harms its own run: that one ends, its message is dead-lettered, and all others go on.
func TestCorruptJournal_HarmsOnlyItsRun(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
		h, v := start(harness.Options{
			Agents: []sdk.Agent{{Spec: desk()}}, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")),
		})
		_, onRedis := v.(redisVandal)
		kinds := []struct {
			name   string
			damage func(context.Context, wire.RunKey) error
			// unread says that the last entry cannot be read or followed, so that nobody can end the run.
			unread bool
		}{
			{name: "an entry is missing", damage: v.cut, unread: onRedis}, // Redis appends to no list of the wrong length
			{name: "an entry is not JSON", damage: v.scribble},
			{name: "an entry has another content", damage: v.alter},
			{name: "the last entry is none", damage: v.behead, unread: true},
			{name: "a blob is missing", damage: v.lose},
		}
		begin := func(name string) (harness.Run, *harness.Call) {
			ev := h.Init("desk", map[string]string{"message": strings.Repeat("large ", 60_000)})
			ev.Subject, ev.ID = name, name
			return h.Send("desk", ev), h.Call("calc.add")
		}
		healthy, call := begin("healthy")
		for _, kind := range kinds {
			r, call := begin(kind.name)
			h.Suspended(r, 1)
			h.Restart() // what is in memory would not be read again
			if err := kind.damage(t.Context(), r.Key); err != nil {
				t.Fatalf("%s: %v", kind.name, err)
			}
			answer := call.Response("calc.added", sum(3))
			call.Send(answer)
			want := wire.DefaultSubjects().Reply(address(t, call))
			if d := h.DeadLetter(); d.Reason != string(sdk.CodeCorrupt) || d.Subject != want {
				t.Errorf("%s: dead letter %+v, want %s of %s", kind.name, d, sdk.CodeCorrupt, want)
			}
			if !kind.unread {
				wantProblem(t, h.Done(r), "desk", sdk.CodeCorrupt)
			}
			// What comes later for the run is settled as well.
			answer.ID = "another"
			h.PublishAgain(call, answer)
			if d := h.DeadLetter(); d.Reason != string(sdk.CodeCorrupt) || d.Subject != want {
				t.Errorf("%s: second dead letter %+v", kind.name, d)
			}
		}
		call.Answer("calc.added", sum(3))
		wantResponse(t, h.Done(healthy), "three")
		r, call := begin("later")
		call.Answer("calc.added", sum(3))
		wantResponse(t, h.Done(r), "three")
	})
}

func address(t *testing.T, c *harness.Call) wire.CallAddress {
	t.Helper()
	a, err := wire.DefaultSubjects().Parse(c.Subject)
	if err != nil {
		t.Fatal(err)
	}
	return a.Call
}

// A listing shows a run whose last entry cannot be read, and all others.
func TestCorruptJournal_DoesNotHideOtherRuns(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
		h, v := start(harness.Options{
			Agents: []sdk.Agent{{Spec: desk()}}, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")),
		})
		first := h.Run("desk", hello())
		h.Suspended(first, 1)
		ev := h.Init("desk", hello())
		ev.Subject = "second"
		second := h.Send("desk", ev)
		h.Suspended(second, 1)
		if err := v.behead(t.Context(), first.Key); err != nil {
			t.Fatal(err)
		}
		runs, _, err := h.Worker().Store.Runs(t.Context(), "", 10)
		if err != nil || len(runs) != 2 {
			t.Fatalf("%d runs, %v", len(runs), err)
		}
		for _, r := range runs {
			_, err := core.DecodeEntry(r.Last.Data)
			if damaged := r.Run == first.Key; (err != nil) != damaged || (r.Last.Rev == 0) != damaged {
				t.Errorf("run %s is listed with revision %d, %v", r.Run, r.Last.Rev, err)
			}
		}
	})
}

func natsStore(conn *broker.Conn) runner.Store {
	store, err := worker.JournalStore(context.Background(), conn)
	if err != nil {
		panic(err) // the connection was just made
	}
	return store
}

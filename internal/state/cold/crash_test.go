package cold

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

// errDied is what a program that is gone would have been answered.
var errDied = errors.New("the program died")

// life counts the requests of a program, to Redis and for writes to the broker, and ends with one of them: before it is sent, or before it is answered.
// Afterwards nothing is sent.
type life struct {
	requests, ends int
	unsent         bool
}

// send sends a request, if the program still lives.
func (l *life) send(do func() error) error {
	l.requests++
	if l.ends == 0 || l.requests < l.ends {
		return do()
	}
	if l.requests == l.ends && !l.unsent {
		_ = do() // the answer reaches nobody
	}
	return errDied
}

// DialHook implements redis.Hook.
func (l *life) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (l *life) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := l.send(func() error { return next(ctx, cmd) })
		if errors.Is(err, errDied) {
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (l *life) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := l.send(func() error { return next(ctx, cmds) })
		if errors.Is(err, errDied) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// mortalBroker counts writes.
type mortalBroker struct {
	jetstream.JetStream
	life *life
}

func (m mortalBroker) PublishMsg(ctx context.Context, msg *nats.Msg, o ...jetstream.PublishOpt) (ack *jetstream.PubAck, err error) {
	err = m.life.send(func() (err error) {
		ack, err = m.JetStream.PublishMsg(ctx, msg, o...)
		return err
	})
	return ack, err
}

func (m mortalBroker) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := m.JetStream.Stream(ctx, name)
	return mortalStream{s, m.life}, err
}

type mortalStream struct {
	jetstream.Stream
	life *life
}

func (m mortalStream) Purge(ctx context.Context, o ...jetstream.StreamPurgeOpt) error {
	return m.life.send(func() error { return m.Stream.Purge(ctx, o...) })
}

// mortal is the store of a program that dies with a request.
func (s server) mortal(t testing.TB, of *Store, l *life) *Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.redis.Addr(), MaxRetries: -1})
	client.AddHook(l)
	hot := redisstore.New(client, redisstore.Options{Root: of.subjects.Root()})
	t.Cleanup(func() { check(t, "close redis", hot.Close()) })
	return New(hot, mortalBroker{of.js, l}, of.stream, of.subjects)
}

// deaths runs a test for each request with which a program can die that does something, and as one that does not.
func deaths(t *testing.T, test func(t *testing.T, l *life)) {
	t.Helper()
	for _, unsent := range []bool{true, false} {
		for ends := 1; ; ends++ {
			l := &life{ends: ends, unsent: unsent}
			t.Run(fmt.Sprintf("request %d unsent %t", ends, unsent), func(t *testing.T) { test(t, l) })
			if l.requests < ends || t.Failed() {
				break
			}
		}
	}
}

func ended(run wire.RunKey, whole []runner.Record) []state.Ended {
	return []state.Ended{{Run: run, Version: whole[len(whole)-1].Version}}
}

// TestStore_DeathWhileArchivingLosesNothing has one program die with each request of each step, and another go on.
func TestStore_DeathWhileArchivingLosesNothing(t *testing.T) {
	t.Parallel()
	srv := start(t)
	deaths(t, func(t *testing.T, l *life) {
		s := srv.fresh(t)
		whole := written(t, s, trip, 4)
		dies := srv.mortal(t, s, l)
		at := now
		for range 2 {
			_, _ = dies.Archive(t.Context(), ended(trip, whole), at, 1, false) // it may have died
			at = at.Add(Settled)
		}
		intact(t, s, trip, whole)
		for range 3 { // what was begun may be begun anew
			s.step(t, trip, at)
			intact(t, s, trip, whole)
			at = at.Add(Settled)
		}
		if n := s.messages(t, trip); n != 1 || !s.thinned(t, trip) {
			t.Errorf("%d archives, out of Redis: %t", n, s.thinned(t, trip))
		}
	})
}

// TestStore_DeathWhileBringingBackLosesNothing appends to a journal that has left.
func TestStore_DeathWhileBringingBackLosesNothing(t *testing.T) {
	t.Parallel()
	srv := start(t)
	deaths(t, func(t *testing.T, l *life) {
		s := srv.fresh(t)
		whole := written(t, s, trip, 4)
		s.left(t, trip)
		next := storetest.NextRecord(whole[3].Version, "next")
		_, _ = srv.mortal(t, s, l).Append(t.Context(), trip, whole[3].Version, next) // it may have died
		head, err := s.Head(t.Context(), trip)
		check(t, "read head", err)
		if head.Etag != next.Etag {
			intact(t, s, trip, whole)
		}
		v, err := s.Append(t.Context(), trip, whole[3].Version, next)
		check(t, "append", err)
		next.Version = v
		intact(t, s, trip, append(whole, next))
	})
}

// TestStore_DeathWhilePurgingLeavesNothing has a purge die, and a later one, or a pass, do the rest.
func TestStore_DeathWhilePurgingLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := start(t)
	for name, finish := range map[string]func(t *testing.T, s *Store, whole []runner.Record, keep runner.Record){
		"repeated": func(t *testing.T, s *Store, whole []runner.Record, keep runner.Record) {
			_, err := s.Purge(t.Context(), trip, whole[3].Version, keep)
			check(t, "purge", err)
		},
		"by a pass": func(t *testing.T, s *Store, whole []runner.Record, keep runner.Record) {
			v, err := s.Store.Purge(t.Context(), trip, whole[3].Version, keep)
			check(t, "purge", err)
			_, err = s.Archive(t.Context(), []state.Ended{{Run: trip, Version: v, Purged: true}}, now, 1, false)
			check(t, "archive", err)
		},
		"by its removal": func(t *testing.T, s *Store, whole []runner.Record, keep runner.Record) {
			v, err := s.Store.Purge(t.Context(), trip, whole[3].Version, keep)
			check(t, "purge", err)
			check(t, "remove", s.Remove(t.Context(), trip, v))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deaths(t, func(t *testing.T, l *life) {
				s := srv.fresh(t)
				whole := written(t, s, trip, 4)
				s.left(t, trip)
				keep := storetest.NextRecord(runner.Version{}, "tombstone")
				_, _ = srv.mortal(t, s, l).Purge(t.Context(), trip, whole[3].Version, keep) // it may have died
				finish(t, s, whole, keep)
				a, err := s.Archived(t.Context(), trip)
				check(t, "read head", err)
				if n := s.messages(t, trip); n != 0 || a.Thin || a.Note != (redisstore.Note{}) {
					t.Errorf("%d archives are left, and %+v", n, a)
				}
			})
		})
	}
}

// TestStore_DeathOfAnArchivingProgramWhosePurgeFollows: an archive that was written and not noted is deleted with its run.
func TestStore_DeathOfAnArchivingProgramWhosePurgeFollows(t *testing.T) {
	t.Parallel()
	srv := start(t)
	deaths(t, func(t *testing.T, l *life) {
		s := srv.fresh(t)
		whole := written(t, s, trip, 4)
		_, _ = srv.mortal(t, s, l).Archive(t.Context(), ended(trip, whole), now, 1, false) // it may have died
		storetest.Purged(t, s, trip, whole[3].Version)
		if n := s.messages(t, trip); n != 0 {
			t.Errorf("%d archives are left", n)
		}
	})
}

// meanwhile does something before an archive is published.
type meanwhile struct {
	jetstream.JetStream
	do func()
}

func (m meanwhile) PublishMsg(ctx context.Context, msg *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	m.do()
	return m.JetStream.PublishMsg(ctx, msg, o...)
}

func TestStore_ArchiveOfARunThatIsPurgedMeanwhileIsDeleted(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	whole := written(t, s, trip, 4)
	archives := New(s.Store, meanwhile{s.js, func() { storetest.Purged(t, s, trip, whole[3].Version) }}, s.stream, s.subjects)
	all, err := archives.Archive(t.Context(), ended(trip, whole), now, 1, false)
	check(t, "archive", err)
	if all[0] != (state.Archival{}) || s.messages(t, trip) != 0 {
		t.Errorf("%+v, and %d archives", all[0], s.messages(t, trip))
	}
}

// TestStore_RunThatGoesOnMeanwhileStays, with all that it has.
func TestStore_RunThatGoesOnMeanwhileStays(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	whole := written(t, s, trip, 4)
	archives := New(s.Store, meanwhile{s.js, func() { whole = append(whole, storetest.AppendN(t, s, trip, whole[len(whole)-1].Version, 1)...) }}, s.stream, s.subjects)
	for range 2 {
		if step := archives.step(t, trip, now); step != state.StepNone {
			t.Errorf("step %q", step)
		}
		intact(t, s.Store, trip, whole)
	}
	s.left(t, trip)
	intact(t, s, trip, whole)
	if n := s.messages(t, trip); n != 1 {
		t.Errorf("%d archives", n)
	}
}

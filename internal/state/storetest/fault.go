package storetest

import (
	"context"
	"errors"
	"testing"

	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// AmbiguousAppend tests a store behind proxy: whoever gets no answer appends the same record again, and learns what
// became of it.
func AmbiguousAppend(t *testing.T, s runner.Store, proxy *Proxy) {
	t.Helper()
	for name, test := range map[string]func(t *testing.T, run wire.RunKey){
		"written": func(t *testing.T, run wire.RunKey) {
			records := AppendN(t, s, run, runner.Version{}, 1)
			base := records[0].Version
			next := loseAnswer(t, s, proxy, run, base)
			first, err := s.Append(testContext(t), run, base, next)
			if err != nil {
				t.Fatalf("repeat: %v", err)
			}
			second, err := s.Append(testContext(t), run, base, next)
			if err != nil || second != first || first.Rev != next.Rev || first.Etag != next.Etag {
				t.Errorf("repeats return %+v and %+v, %v", first, second, err)
			}
			next.Version = first
			CheckJournal(t, s, run, append(records, next))
		},
		"created": func(t *testing.T, run wire.RunKey) {
			next := loseAnswer(t, s, proxy, run, runner.Version{})
			v, err := s.Append(testContext(t), run, runner.Version{}, next)
			if err != nil {
				t.Fatalf("repeat: %v", err)
			}
			next.Version = v
			CheckJournal(t, s, run, []runner.Record{next})
		},
		"followed": func(t *testing.T, run wire.RunKey) {
			records := AppendN(t, s, run, runner.Version{}, 1)
			base := records[0].Version
			next := loseAnswer(t, s, proxy, run, base)
			head, err := s.Head(testContext(t), run)
			if err != nil || head.Etag != next.Etag {
				t.Fatalf("head: %+v, %v, want etag %s", head.Version, err, next.Etag)
			}
			next.Version = head.Version
			records = append(append(records, next), AppendN(t, s, run, head.Version, 1)...)
			_, err = s.Append(testContext(t), run, base, next)
			wantError(t, "repeat after another entry", err, runner.ErrConflict)
			CheckJournal(t, s, run, records)
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, wire.NewRunKey(name)) })
	}
}

// loseAnswer appends a record without getting an answer, heals the network and returns the record.
func loseAnswer(t *testing.T, s runner.Store, proxy *Proxy, run wire.RunKey, base runner.Version) runner.Record {
	t.Helper()
	next := NextRecord(base, "written in the dark")
	reconnect := func() {
		Await(t, "an answer of the store", func(ctx context.Context) bool {
			_, err := s.Head(ctx, run)
			return err == nil || errors.Is(err, runner.ErrNotFound)
		})
	}
	// A client learns that its connections were cut by using them, and may lose requests until then.
	reconnect()
	proxy.Mute()
	_, err := s.Append(testContext(t), run, base, next)
	wantError(t, "append without an answer", err, runner.ErrAmbiguous)
	select {
	case <-proxy.Lost():
	default:
		t.Error("no answer was lost")
	}
	proxy.Heal()
	reconnect()
	return next
}

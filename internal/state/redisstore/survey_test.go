package redisstore

import (
	"fmt"
	"sync"
	"testing"

	"agentd/internal/runner"
	"agentd/internal/state/redistest"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A root is borrowed by one program at a time, and by nobody who would find it in use; what is given back is that root alone.
func TestBorrow_TakesAnUnusedRootAlone(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"server": redistest.Start(t), "cluster": startCluster(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			mine, other := fresh(t, url, Options{}), fresh(t, url, Options{})
			fill := func(s *Store) {
				t.Helper()
				for i := range 30 {
					run := wire.NewRunKey(fmt.Sprint("run ", i))
					if _, err := s.Append(ctx, run, runner.Version{}, runner.Record{Version: runner.Version{Rev: 1, Etag: "e"}, Data: []byte("{}")}); err != nil {
						t.Fatal(err)
					}
				}
			}
			fill(other)
			if err := other.Borrow(ctx, "x"); !isConfig(err) {
				t.Errorf("a root in use is borrowed: %v", err)
			}
			if err := other.GiveBack(ctx); !isConfig(err) {
				t.Errorf("a root in use is given back: %v", err)
			}
			if err := mine.Borrow(ctx, "the first"); err != nil {
				t.Fatal(err)
			}
			fill(mine)
			if err := mine.Borrow(ctx, "the second"); !isConfig(err) {
				t.Errorf("a root is borrowed twice: %v", err)
			}
			if by, err := mine.Borrowed(ctx); err != nil || by != "the first" {
				t.Errorf("it is borrowed by %q: %v", by, err)
			}
			if w, err := mine.Weigh(ctx); err != nil || w.Keys < 61 || w.Bytes < 30*100 {
				t.Errorf("30 runs weigh %+v: %v", w, err)
			}
			if err := mine.GiveBack(ctx); err != nil {
				t.Error(err)
			}
			if w, err := mine.Weigh(ctx); err != nil || w.Keys != 0 {
				t.Errorf("given back, there is %+v: %v", w, err)
			}
			if runs, _, err := other.Runs(ctx, "", 100); err != nil || len(runs) != 30 {
				t.Errorf("somebody else's runs are %d: %v", len(runs), err)
			}
		})
	}
}

func isConfig(err error) bool { return err != nil && sdk.AsError(err).Code == sdk.CodeConfig }

func TestOptions_CommandIsToldOfEachCommand(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := map[string]int{}
	s := fresh(t, redistest.Start(t), Options{Command: func(name string) {
		mu.Lock()
		defer mu.Unlock()
		sent[name]++
	}})
	mu.Lock()
	clear(sent) // those of Open
	mu.Unlock()
	if d, err := s.RoundTrip(t.Context()); err != nil || d <= 0 {
		t.Errorf("a round trip takes %s: %v", d, err)
	}
	if got := s.Durability(t.Context()); got != "always" {
		t.Errorf("the server syncs %q", got)
	}
	_, _ = s.Head(t.Context(), wire.NewRunKey("nobody"))
	if _, _, err := s.Runs(t.Context(), "", 1); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if sent["ping"] != 1 || sent["lindex"] != 1 || sent["zcard"] != partitions || sent["hello"] != 0 {
		t.Errorf("it was told of %v", sent)
	}
}

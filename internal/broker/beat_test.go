package broker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBeat_GoesOnUntilItIsStoppedOrWantsNoMore(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ most, want int }{"stopped": {100, 3}, "wants no more": {2, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				beats := 0
				stop := Beat(time.Second, func() bool {
					beats++
					return beats < of.most
				})
				time.Sleep(3*time.Second + time.Millisecond)
				stop()
				stop()
				time.Sleep(time.Minute)
				if beats != of.want {
					t.Errorf("it beat %d times, want %d", beats, of.want)
				}
			})
		})
	}
}

func TestBeat_StopWaitsForTheOneUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		beaten := false
		stop := Beat(time.Second, func() bool {
			time.Sleep(time.Minute)
			beaten = true
			return true
		})
		time.Sleep(2 * time.Second)
		stop()
		if !beaten {
			t.Error("a beat was under way when stop returned")
		}
	})
}

// What a beat panics with reaches who stops it, once, as if it had been called there: a worker lives on.
func TestBeat_PanicReachesWhoStopsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := Beat(time.Second, func() bool { panic("no pulse") })
		time.Sleep(time.Minute)
		stopped := func() (panicked any) {
			defer func() { panicked = recover() }()
			stop()
			return nil
		}
		if text, _ := stopped().(string); !strings.HasPrefix(text, "no pulse\n") || !strings.Contains(text, t.Name()) {
			t.Errorf("stop panics with %q, want what the beat did and where", text)
		}
		if again := stopped(); again != nil {
			t.Errorf("it panics again with %v", again)
		}
	})
}

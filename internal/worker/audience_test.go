package worker

import (
	"fmt"
	"testing"
	"time"

	"agentd/sdk/wire"
)

// crowd is an audience of the agent desk that has been asked, on a clock of its own.
func crowd() (a *audience, clock *time.Time) {
	now := time.Unix(1_790_000_000, 0)
	a = newAudience(map[string]bool{"travel_desk": true, "clerk": true})
	a.now = func() time.Time { return now }
	a.ask(-1)
	return a, &now
}

func TestAudience_WatchesWhatWasAnnounced(t *testing.T) {
	t.Parallel()
	one, two := wire.NewRunKey("one"), wire.NewRunKey("two")
	for name, c := range map[string]struct {
		agent string
		run   wire.RunKey
		// want is whether travel.desk's one and two, and clerk's one, are watched.
		want [3]bool
	}{
		"a run":                 {"travel_desk", one, [3]bool{true, false, false}},
		"an agent":              {"travel_desk", wire.RunKey{}, [3]bool{true, true, false}},
		"everything":            {"", wire.RunKey{}, [3]bool{true, true, true}},
		"another worker's run":  {"stranger", one, [3]bool{}},
		"another worker's runs": {"stranger", wire.RunKey{}, [3]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, now := crowd()
			watched := func() [3]bool {
				return [3]bool{a.Watches("travel.desk", one), a.Watches("travel.desk", two), a.Watches("clerk", one)}
			}
			if got := watched(); got != [3]bool{} {
				t.Errorf("watched before anything was announced: %v", got)
			}
			a.heard(c.agent, c.run)
			if got := watched(); got != c.want {
				t.Errorf("watched %v, want %v", got, c.want)
			}
			*now = now.Add(wire.WatchLasts - time.Millisecond)
			if got := watched(); got != c.want {
				t.Errorf("watched %v just before that ends, want %v", got, c.want)
			}
			*now = now.Add(time.Millisecond)
			if got := watched(); got != [3]bool{} {
				t.Errorf("watched after that has ended: %v", got)
			}
		})
	}
}

// Where it cannot know, everything is watched.
func TestAudience_InDoubtEverythingIsWatched(t *testing.T) {
	t.Parallel()
	run := wire.NewRunKey("one")
	a, now := crowd()
	a.ask(1)
	if !a.Watches("clerk", run) {
		t.Error("not watched while watchers may not have answered")
	}
	a.ask(-1)
	unread := true
	a.unread = func() bool { return unread }
	if !a.Watches("clerk", run) {
		t.Error("not watched while announcements are unread")
	}
	if unread = false; a.Watches("clerk", run) {
		t.Error("watched when all were read")
	}
	a.lost()
	if *now = now.Add(wire.WatchEvery); !a.Watches("clerk", run) {
		t.Error("not watched although announcements were lost, which come again")
	}
	if *now = now.Add(wire.WatchLasts); a.Watches("clerk", run) {
		t.Error("watched for ever after announcements were lost")
	}
	if !newAudience(nil).Watches("clerk", run) {
		t.Error("not watched before watchers were asked")
	}
}

// A million announced runs take the memory of mostWatched, and nobody is told less.
func TestAudience_IsBounded(t *testing.T) {
	t.Parallel()
	a, now := crowd()
	honest := wire.NewRunKey("honest")
	for i := range 1_000_000 {
		a.heard("travel_desk", wire.NewRunKey(fmt.Sprint(i)))
		a.heard(fmt.Sprint(i), wire.RunKey{})
	}
	a.heard("travel_desk", honest)
	if len(a.runs) != mostWatched || len(a.whole) != 1 {
		t.Errorf("%d runs and %d agents are kept, want %d and 1", len(a.runs), len(a.whole), mostWatched)
	}
	if !a.Watches("travel.desk", honest) {
		t.Error("who comes after the others is told nothing")
	}
	if a.Watches("clerk", honest) {
		t.Error("another agent's runs are watched")
	}
	*now = now.Add(wire.WatchLasts)
	a.heard("travel_desk", honest)
	if len(a.runs) != 1 || !a.Watches("travel.desk", honest) || a.Watches("travel.desk", wire.NewRunKey("1")) {
		t.Errorf("%d runs are kept after the others have ended, want 1", len(a.runs))
	}
}

package sim

import (
	"testing"
)

// broken are worlds that break their promises.
var broken = []struct {
	name   string
	breaks func(*simulation)
}{
	{"store appends on top of anything", func(s *simulation) { s.store.losesUpdates = true }},
	{"store writes a repeated append again", func(s *simulation) { s.store.forgetsEtags = true }},
	{"store confirms what it does not write", func(s *simulation) { s.store.confirmsNothing = true }},
	{"store confirms what a failover forgets", func(s *simulation) { s.store.confirmsEarly = true }},
	{"store compares numbers instead of etags", func(s *simulation) {
		s.store.comparesNumbers, s.mix = true, mix{}
		for _, f := range []fault{failover, storeUnsure, serviceTwice, duplicate, cancelled, spoken, reorder} { // what makes two entries with one number
			s.mix[f] = kinds[f].most
		}
	}},
	{"broker removes what it delivers", func(s *simulation) { s.broker.acksOnDelivery = true }},
	{"broker confirms what it drops", func(s *simulation) { s.broker.dropsFirstPublish = true }},
	{"broker loses timers", func(s *simulation) { s.broker.losesTimers = true }},
	{"broker forgets what it has confirmed, and nobody repairs it", func(s *simulation) { s.broker.neverRepaired = true }},
}

// within is how many histories it takes at most to notice a broken world. The one that is hardest to notice, whose store
// compares numbers, breaks a promise in one of 180: whatever order the seeds come in, 2,000 miss it once in 60,000 times.
const within = 2000

// TestSimulation_CatchesBrokenWorld proves that the simulation can fail: a store or a broker that breaks its promise is
// noticed within a few histories.
func TestSimulation_CatchesBrokenWorld(t *testing.T) {
	t.Parallel()
	for _, test := range broken {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var in pool
			defer in.release()
			for seed := uint64(1); seed <= within; seed++ {
				if found := play(plan{seed: seed}, &in, &stats{}, test.breaks, nil); len(found) > 0 {
					t.Logf("history %d: %s", seed, found[0])
					return
				}
			}
			t.Errorf("not noticed in %d histories", within)
		})
	}
}

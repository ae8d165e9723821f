package sim

import "testing"

// TestSimulation_CatchesBrokenWorld proves that the simulation can fail: a store or a broker that breaks its promise is
// noticed within a few histories.
func TestSimulation_CatchesBrokenWorld(t *testing.T) {
	const within = 50
	tests := []struct {
		name   string
		breaks func(*simulation)
	}{
		{"store appends on top of anything", func(s *simulation) { s.store.losesUpdates = true }},
		{"store writes a repeated append again", func(s *simulation) { s.store.forgetsEtags = true }},
		{"store confirms what it does not write", func(s *simulation) { s.store.confirmsNothing = true }},
		{"broker removes what it delivers", func(s *simulation) { s.broker.acksOnDelivery = true }},
		{"broker confirms what it drops", func(s *simulation) { s.broker.dropsFirstPublish = true }},
		{"broker loses timers", func(s *simulation) { s.broker.losesTimers = true }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= within; seed++ {
				if found := play(seed, newStats(), test.breaks, nil); len(found) > 0 {
					t.Logf("history %d: %s", seed, found[0])
					return
				}
			}
			t.Errorf("not noticed in %d histories", within)
		})
	}
}

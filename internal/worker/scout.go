package worker

import (
	"context"
	"time"

	"agentd/internal/retry"
)

// sends is how often a run that waits for a model is sent to ask it, where nobody else does: by whole seconds, as leases last. Each is two
// entries more in the journal of some run, so they become rare in a long outage.
var sends = retry.Pauses{First: firstProbe, Longest: 5 * time.Minute}

// scouting is how far somebody is who sends runs to ask a model. outages.mu guards more.
type scouting struct {
	// more says that runs may have been parked since it was last looked whether any are.
	more bool
	// answered has a token when the model has answered.
	answered chan struct{}
}

// scouts begins to send runs that wait for a model, unless that is being done. The caller has the lock.
func (o *outages) scouts(key string) {
	if s := o.scouting[key]; s != nil {
		s.more = true
		return
	}
	s := &scouting{answered: make(chan struct{}, 1)}
	if o.do(func(ctx context.Context) { o.scout(ctx, key, s) }) {
		o.scouting[key] = s
	}
}

// scout has runs that wait for a model ask it, one at a time, when nobody is kept from asking any more: who waits looks by itself half a
// minute later at the soonest, and where all wait, nobody else asks (ADR 39). It ends when none waits.
func (o *outages) scout(ctx context.Context, key string, s *scouting) {
	for n := 1; ctx.Err() == nil; {
		if left := o.left(key); left > 0 {
			if s.rest(ctx, left) {
				n = 1
			}
			continue // somebody may have asked meanwhile
		}
		pause := sends.Nth(n)
		n++
		switch waits, err := o.send(ctx, key, pause); {
		case err != nil && ctx.Err() == nil:
			o.logger.WarnContext(ctx, "no run is sent to see whether a model answers", "model", key, "error", err)
		case err == nil && !waits && o.ends(key, s):
			return
		}
		if s.rest(ctx, pause) {
			n = 1
		}
	}
}

// rest waits for a time, or until the model has answered, which it reports: what is known of the outage is over then.
func (s *scouting) rest(ctx context.Context, d time.Duration) (answered bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.answered:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// left is for how much longer nobody is to ask a model.
func (o *outages) left(key string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Until(o.away[key].until)
}

// ends reports whether none of the runs waits that were parked here, now that nobody was found, and has it that nobody sends any then.
func (o *outages) ends(key string, s *scouting) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.more {
		s.more = false
		return false
	}
	delete(o.scouting, key)
	return true
}

// send has the run tried that was parked longest ago, unless one was sent within pause, by whatever worker. It reports whether any run waits.
func (o *outages) send(ctx context.Context, key string, pause time.Duration) (waits bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	run, waits, err := o.conn.FirstParked(ctx, key)
	if err != nil || !waits {
		return false, err
	}
	if mine, err := o.conn.Lease(ctx, "scout_"+key, pause); err != nil || !mine {
		return true, err
	}
	return true, o.conn.Unpark(ctx, key, run)
}

// look finds out of models that were away when the worker started, and whether runs wait for them: whoever knew may be gone.
func (o *outages) look(ctx context.Context, keys []string) {
	for _, key := range keys {
		told, err := o.conn.Outage(ctx, key)
		if err != nil && ctx.Err() == nil {
			o.logger.WarnContext(ctx, "whether a model is away is unknown", "model", key, "error", err)
		}
		o.mu.Lock()
		if _, known := o.away[key]; !known && told > 0 {
			o.away[key] = absence{}.atLeast(time.Now(), told)
		}
		o.scouts(key)
		o.mu.Unlock()
	}
}

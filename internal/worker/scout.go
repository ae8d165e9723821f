package worker

import (
	"context"
	"time"

	"agentd/internal/retry"
)

// sends is how often a run that waits for a model is sent to ask it, where nobody else does: by whole seconds, as leases last. Each is two
// entries more in the journal of some run, so they become rare in a long outage.
var sends = retry.Pauses{First: firstProbe, Longest: 5 * time.Minute}

// looks are how often it is looked whether a run may be sent, while others send and ask.
var looks = retry.Pauses{First: firstProbe, Longest: probeTime}

// lapsed is how long after the end of a lease it is surely gone.
const lapsed = 300 * time.Millisecond

// scouting is how far somebody is who sends runs to ask a model. outages.mu guards more.
type scouting struct {
	// more says that runs may have been parked since it was last looked whether any are.
	more bool
	// anew has a token when the model has answered, or has gone away after that: what was known of an outage is over.
	anew chan struct{}
}

// begin has who rests begin anew.
func (s *scouting) begin() {
	if s == nil {
		return
	}
	select {
	case s.anew <- struct{}{}:
	default: // it has not taken in the last one yet
	}
}

// scouts begins to send runs that wait for a model, unless that is being done. The caller has the lock.
func (o *outages) scouts(key string) {
	if s := o.scouting[key]; s != nil {
		s.more = true
		return
	}
	s := &scouting{anew: make(chan struct{}, 1)}
	if o.do(func(ctx context.Context) { o.scout(ctx, key, s) }) {
		o.scouting[key] = s
	}
}

// scout has runs that wait for a model ask it, one at a time, when nobody is kept from asking any more: where all of them wait, nobody else asks
// before the time of one has come (ADR 39). It ends when none waits.
func (o *outages) scout(ctx context.Context, key string, s *scouting) {
	for others := 0; ctx.Err() == nil; {
		if left := time.Until(o.beforeLooking(key, s).until); left > 0 {
			s.rest(ctx, left)
			continue // somebody may have asked meanwhile
		}
		pause := o.pause(key)
		waits, sent, err := o.send(ctx, key, pause)
		switch {
		case err != nil && ctx.Err() == nil:
			o.logger.WarnContext(ctx, "no run is sent to see whether a model answers", "model", key, "error", err)
		case err == nil && !waits && o.ends(key, s):
			return
		}
		if others++; sent {
			others = 0
		}
		if s.rest(ctx, max(pause, looks.Nth(others))+lapsed) {
			others = 0
		}
	}
}

// pause is for how long no other run is sent after one. A run that was sent and could not ask counts for nothing.
func (o *outages) pause(key string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return sends.Nth(max(o.vain[key], 1))
}

// rest waits for a time, or until an outage is over, or another one begins, which it reports.
func (s *scouting) rest(ctx context.Context, d time.Duration) (anew bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.anew:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// beforeLooking is what is known of a model before it is looked whether runs wait for it: those that are parked from then on may not be found.
func (o *outages) beforeLooking(key string, s *scouting) absence {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.more = false
	return o.away[key]
}

// ends reports whether none of the runs waits that were parked here, now that nobody was found, and has it that nobody sends any then.
func (o *outages) ends(key string, s *scouting) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !s.more {
		delete(o.scouting, key)
	}
	return !s.more
}

// send has the run tried that was parked longest ago, unless one was sent within pause, by whatever worker, or one is asking just now. It reports
// whether any run waits, and whether it has sent it.
func (o *outages) send(ctx context.Context, key string, pause time.Duration) (waits, sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	run, waits, err := o.conn.FirstParked(ctx, key)
	if err != nil || !waits {
		return false, false, err
	}
	if _, asking, err := o.conn.Outage(ctx, key); err != nil || asking {
		return true, false, err
	}
	if mine, err := o.conn.Lease(ctx, scoutLease+key, pause); err != nil || !mine {
		return true, false, err
	}
	return true, true, o.conn.Unpark(ctx, key, run)
}

// scoutLease begins the name of the lease of who has sent a run to ask a model.
const scoutLease = "scout_"

// learn finds out for how long nobody is to ask each of some models, and sends runs that wait for them: whoever knew may be gone.
func (o *outages) learn(ctx context.Context, keys []string) {
	for _, key := range keys {
		told, err := o.told(ctx, key)
		if err != nil && ctx.Err() == nil {
			o.logger.WarnContext(ctx, "whether a model is away is unknown", "model", key, "error", err)
		}
		o.mu.Lock()
		_, away := o.away[key]
		_, answered := o.answered[key]
		if !away && !answered && told > 0 {
			o.away[key] = absence{}.atLeast(time.Now(), told)
		}
		o.scouts(key)
		o.mu.Unlock()
	}
}

// told is for how much longer nobody is to ask a model, as workers have told each other.
func (o *outages) told(ctx context.Context, key string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	left, _, err := o.conn.Outage(ctx, key)
	return left, err
}

package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/retry"
)

const (
	// probeTime is for how long nobody else asks a model that is away while one run does, and after it has failed.
	probeTime = 15 * time.Second
	// unparkPause lies between two runs that are unparked: a model that has just come back is not asked by all at once.
	unparkPause = 50 * time.Millisecond
	// secondLook is when those are looked for that were just being parked while others were unparked.
	secondLook = 3 * time.Second
	// answersFor is for how long a model that has come back is asked by whoever was parked, unless it goes away again: by all whose
	// time comes while others are unparked.
	answersFor = time.Minute
	// hintTimeout bounds what is said to others. A hint that is lost is a wait.
	hintTimeout = 5 * time.Second
)

// outages implements runner.Outages over the broker (ADR 11). What it knows in memory is what this worker saw, and what others told.
type outages struct {
	conn   *broker.Conn
	logger *slog.Logger

	mu sync.Mutex
	// away are the models that cannot be asked, by key, with when one may be tried again.
	away map[string]time.Time
	// answered are the models that came back lately, by key, with when.
	answered map[string]time.Time
	// waking are the keys whose parked runs are being unparked here.
	waking map[string]bool
	// going are the agents that were found not to be paused, with when that was asked.
	going map[string]time.Time
	// ctx ends with the worker; nil before it runs, and then nothing is told.
	ctx  context.Context
	told sync.WaitGroup
}

func newOutages(conn *broker.Conn, logger *slog.Logger) *outages {
	return &outages{conn: conn, logger: logger, away: map[string]time.Time{}, answered: map[string]time.Time{}, waking: map[string]bool{}, going: map[string]time.Time{}}
}

// listen begins to hear what other workers tell. stop ends that, and waits for what is still being told.
func (o *outages) listen(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	o.mu.Lock()
	o.ctx = ctx
	o.mu.Unlock()
	unsubscribe, err := o.conn.OnOutage(o.heard)
	if err != nil {
		cancel()
		return nil, err
	}
	return func() {
		cancel()
		if err := unsubscribe(); err != nil {
			o.logger.Debug("subscription could not be ended", "error", err)
		}
		o.told.Wait()
	}, nil
}

// heard notes what a worker, maybe this one, told of a model.
func (o *outages) heard(key string, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d == 0 {
		delete(o.away, key)
		o.answered[key] = time.Now()
		return
	}
	o.away[key] = time.Now().Add(d)
	delete(o.answered, key)
}

// Ask implements runner.Outages.
func (o *outages) Ask(ctx context.Context, key string, waited bool) bool {
	o.mu.Lock()
	until, away := o.away[key]
	answers := !waited || time.Since(o.answered[key]) < answersFor
	o.mu.Unlock()
	switch {
	case !away && answers:
		return true
	case time.Now().Before(until):
		return false
	}
	mine, err := o.conn.AskAway(ctx, key, probeTime)
	if err != nil {
		o.logger.WarnContext(ctx, "model is asked without knowing whether others ask it", "model", key, "error", err)
		return true
	}
	if !mine {
		o.mu.Lock()
		o.away[key] = time.Now().Add(probeTime)
		o.mu.Unlock()
	}
	return mine
}

// Away implements runner.Outages.
func (o *outages) Away(key string, after time.Duration) {
	after = max(after, probeTime)
	o.mu.Lock()
	o.away[key] = time.Now().Add(after)
	delete(o.answered, key)
	o.mu.Unlock()
	o.tell(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, hintTimeout)
		defer cancel()
		if err := o.conn.TellOutage(ctx, key, after); err != nil {
			o.logger.WarnContext(ctx, "other workers do not know that a model is away", "model", key, "error", err)
		}
	})
}

// Back implements runner.Outages.
func (o *outages) Back(key string, waited bool) {
	o.mu.Lock()
	_, away := o.away[key]
	delete(o.away, key)
	if away || waited {
		o.answered[key] = time.Now()
	}
	known := (away || waited) && !o.waking[key]
	if known {
		o.waking[key] = true
	}
	o.mu.Unlock()
	if known {
		o.tell(func(ctx context.Context) { o.unpark(ctx, key) })
	}
}

// tell has something done in the background, unless the worker does not run.
func (o *outages) tell(do func(context.Context)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx == nil || o.ctx.Err() != nil {
		return
	}
	ctx := o.ctx
	o.told.Go(func() { do(ctx) })
}

// unpark tells all workers that a model answers, and has the runs tried again that wait for it, one after the other, until it is
// away again.
func (o *outages) unpark(ctx context.Context, key string) {
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.waking, key)
	}()
	err := o.conn.TellOutage(ctx, key, 0)
	tried := map[broker.ParkedRun]bool{}
	for pass := 0; err == nil && pass < 2; pass++ {
		if pass > 0 && retry.Sleep(ctx, secondLook) != nil {
			return
		}
		err = o.unparkWaiting(ctx, key, tried)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		o.logger.WarnContext(ctx, "parked runs wait for their time", "model", key, "error", err)
	case len(tried) > 0:
		o.logger.InfoContext(ctx, "parked runs are tried again", "model", key, "runs", len(tried))
	}
}

// unparkWaiting unparks those of the runs that wait for key which were not tried yet.
func (o *outages) unparkWaiting(ctx context.Context, key string, tried map[broker.ParkedRun]bool) error {
	runs, err := o.conn.ParkedRuns(ctx, key, "")
	for _, run := range runs {
		if tried[run] || o.isAway(key) {
			continue
		}
		tried[run] = true
		if err := o.unparkOne(ctx, key, run); err != nil {
			return err
		}
		if err := retry.Sleep(ctx, unparkPause); err != nil {
			return err
		}
	}
	return err
}

func (o *outages) unparkOne(ctx context.Context, key string, run broker.ParkedRun) error {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	return o.conn.Unpark(ctx, key, run)
}

func (o *outages) isAway(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, away := o.away[key]
	return away
}

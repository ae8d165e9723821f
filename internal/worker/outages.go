package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/retry"
)

const (
	// probeTime is for how long nobody else asks a model that is away while one run does, and at most after that has failed, unless the
	// provider says more.
	probeTime = 15 * time.Second
	// firstProbe is for how long nobody asks a model that has just gone away. Each try in vain doubles it.
	firstProbe = time.Second
	// unparkPause lies between two runs that are unparked: a model that has just come back is not asked by all at once.
	unparkPause = 50 * time.Millisecond
	// unparkTurn is for how long one worker unparks runs before any may go on with them, and how late it is noticed that it has died.
	unparkTurn = 5 * time.Second
	// afterTurn is how often a worker whose turn is over tries to have another.
	afterTurn = time.Second
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
	// away are the models that cannot be asked, by key.
	away map[string]absence
	// vain is how often each model was asked in vain since it last answered, by key.
	vain map[string]int
	// answered are the models that came back lately, by key, with when.
	answered map[string]time.Time
	// waking are the keys whose parked runs are being unparked here.
	waking map[string]bool
	// looked are the keys for which this worker has looked for parked runs.
	looked map[string]bool
	// scouting are the keys whose parked runs are sent to ask, one by one, from here.
	scouting map[string]*scouting
	// going are the agents that were found not to be paused, with when that was asked.
	going map[string]time.Time
	// ctx ends with the worker; nil before it runs, and then nothing is told.
	ctx     context.Context
	telling sync.WaitGroup
}

// absence is what is known of a model that is away: until when nobody is to ask it, and for how long it was last said that nobody is to.
type absence struct {
	until time.Time
	lasts time.Duration
}

// failed is the absence of a model that was asked in vain at a time. after is what its provider asks for. Who asked while nobody was to did
// not know yet, and changes nothing.
func (a absence) failed(at time.Time, after time.Duration) absence {
	switch {
	case a.lasts == 0:
		a.lasts = firstProbe
	case !at.Before(a.until):
		a.lasts = min(2*a.lasts, probeTime)
	default:
		return a.atLeast(at, after)
	}
	return a.atLeast(at, max(a.lasts, after))
}

// atLeast is an absence in which nobody is to ask for a time.
func (a absence) atLeast(at time.Time, d time.Duration) absence {
	if until := at.Add(d); until.After(a.until) {
		a.until = until
	}
	a.lasts = max(a.lasts, d)
	return a
}

func newOutages(conn *broker.Conn, logger *slog.Logger) *outages {
	return &outages{
		conn: conn, logger: logger, away: map[string]absence{}, vain: map[string]int{}, answered: map[string]time.Time{}, waking: map[string]bool{},
		looked: map[string]bool{}, scouting: map[string]*scouting{}, going: map[string]time.Time{},
	}
}

// listen begins to hear what other workers tell, and finds out what they have told of some models. stop ends that, and waits for what is still
// being told.
func (o *outages) listen(ctx context.Context, keys []string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	o.mu.Lock()
	o.ctx = ctx
	o.mu.Unlock()
	unsubscribe, err := o.conn.OnOutage(o.heard)
	if err != nil {
		cancel()
		return nil, err
	}
	o.mu.Lock()
	o.do(func(ctx context.Context) { o.learn(ctx, keys) })
	o.mu.Unlock()
	return func() {
		cancel()
		if err := unsubscribe(); err != nil {
			o.logger.Debug("subscription could not be ended", "error", err)
		}
		o.telling.Wait()
	}, nil
}

// heard notes what a worker, maybe this one, told of a model. All that hear that it answers unpark the runs that wait for it, in turns: any
// of them may die.
func (o *outages) heard(key string, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d > 0 {
		o.lost(key, time.Now())
		o.away[key] = absence{lasts: o.away[key].lasts}.atLeast(time.Now(), d)
		delete(o.answered, key)
		o.scouts(key)
		return
	}
	delete(o.away, key)
	delete(o.vain, key)
	o.answered[key], o.looked[key] = time.Now(), true
	o.scouting[key].begin()
	if !o.waking[key] {
		o.waking[key] = o.do(func(ctx context.Context) { o.unpark(ctx, key) })
	}
}

// Ask implements runner.Outages.
func (o *outages) Ask(ctx context.Context, key string, waited bool) bool {
	o.mu.Lock()
	absent, away := o.away[key]
	answers := !waited || time.Since(o.answered[key]) < answersFor
	o.mu.Unlock()
	switch {
	case !away && answers:
		return true
	case time.Now().Before(absent.until):
		return false
	}
	mine, err := o.conn.AskAway(ctx, key, probeTime)
	if err != nil {
		o.logger.WarnContext(ctx, "model is asked without knowing whether others ask it", "model", key, "error", err)
		return true
	}
	if !mine && away { // that another run asks says nothing of a model that nobody here has missed
		o.mu.Lock()
		if known, still := o.away[key]; still {
			o.away[key] = known.atLeast(time.Now(), firstProbe) // who has the right may have used it by then, or have died
		}
		o.mu.Unlock()
	}
	return mine
}

// Away implements runner.Outages.
func (o *outages) Away(key string, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.answered, key)
	at := time.Now()
	o.lost(key, at)
	absent := o.away[key].failed(at, after)
	if absent == o.away[key] {
		return
	}
	o.away[key] = absent
	o.do(func(ctx context.Context) { o.tell(ctx, key, absent.until.Sub(at)) })
}

// lost notes that a model was asked in vain at a time, which several may have done at once. The caller has the lock.
func (o *outages) lost(key string, at time.Time) {
	known, away := o.away[key]
	if !away {
		delete(o.vain, key)
		o.scouting[key].begin()
	}
	if !at.Before(known.until) {
		o.vain[key]++
	}
}

// Back implements runner.Outages. The first reply that a worker gets from a model has it look for runs that wait: whoever knew of the
// outage may be gone.
func (o *outages) Back(key string, waited bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, away := o.away[key]
	switch {
	case away || waited:
		delete(o.away, key)
		o.answered[key] = time.Now()
		o.do(func(ctx context.Context) { o.tell(ctx, key, 0) })
	case !o.looked[key]:
		o.looked[key] = o.do(func(ctx context.Context) {
			switch runs, err := o.conn.ParkedRuns(ctx, key, ""); {
			case err != nil:
				o.logger.WarnContext(ctx, "whether runs wait for a model is unknown", "model", key, "error", err)
			case len(runs) > 0:
				o.tell(ctx, key, 0)
			}
		})
	}
}

// tell tells all workers, this one among them, that nobody is to ask a model for a time, or that it answers.
func (o *outages) tell(ctx context.Context, key string, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	err := o.conn.TellOutage(ctx, key, d)
	if err == nil && d == 0 { // in the next outage runs are sent soon
		err = o.conn.EndLease(ctx, scoutLease+key)
	}
	if err != nil {
		o.logger.WarnContext(ctx, "other workers do not know whether a model answers", "model", key, "error", err)
	}
}

// do has something done in the background, unless the worker does not run. The caller has the lock.
func (o *outages) do(something func(context.Context)) bool {
	if o.ctx == nil || o.ctx.Err() != nil {
		return false
	}
	ctx := o.ctx
	o.telling.Go(func() { something(ctx) })
	return true
}

// unpark has the runs tried again that wait for a model, one after the other, until it is away again.
func (o *outages) unpark(ctx context.Context, key string) {
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.waking, key)
	}()
	tried := map[broker.ParkedRun]bool{}
	if err := o.unparkInTurns(ctx, key, tried); err != nil && ctx.Err() == nil {
		o.logger.WarnContext(ctx, "parked runs wait for their time", "model", key, "error", err)
	}
	if len(tried) > 0 {
		o.logger.InfoContext(ctx, "parked runs are tried again", "model", key, "runs", len(tried))
	}
}

// unparkInTurns unparks runs when it is this worker's turn, and looks after another one's whether any are left.
func (o *outages) unparkInTurns(ctx context.Context, key string, tried map[broker.ParkedRun]bool) error {
	again, wait := true, unparkTurn
	for {
		runs, err := o.waiting(ctx, key, tried)
		mine := false
		if err == nil && len(runs) > 0 {
			mine, err = o.conn.Lease(ctx, "unpark_"+key, unparkTurn)
		}
		switch {
		case err != nil || o.isAway(key):
			return err
		case mine:
			wait = afterTurn
			err = o.unparkSome(ctx, key, runs, tried)
		case len(runs) > 0:
			err = retry.Sleep(ctx, wait)
		case again:
			again = false
			err = retry.Sleep(ctx, secondLook)
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// waiting are those of the runs that wait for key which were not tried yet.
func (o *outages) waiting(ctx context.Context, key string, tried map[broker.ParkedRun]bool) ([]broker.ParkedRun, error) {
	runs, err := o.conn.ParkedRuns(ctx, key, "")
	return slices.DeleteFunc(runs, func(r broker.ParkedRun) bool { return tried[r] }), err
}

// unparkSome unparks runs for as long as this worker's turn lasts.
func (o *outages) unparkSome(ctx context.Context, key string, runs []broker.ParkedRun, tried map[broker.ParkedRun]bool) error {
	until := time.Now().Add(unparkTurn)
	for _, run := range runs {
		if o.isAway(key) || time.Now().After(until) {
			return nil
		}
		tried[run] = true
		if err := o.unparkOne(ctx, key, run); err != nil {
			return err
		}
		if err := retry.Sleep(ctx, unparkPause); err != nil {
			return err
		}
	}
	return nil
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

package reconcile

import (
	"context"
	"errors"
	"time"

	"agentd/internal/broker"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// forgotten is how far back refillAgents looks: longer than servers keep what they have not synced, and than it takes mostly until what an entry
	// asks for is published.
	forgotten = 2 * time.Hour
	// refillAgain lies between two looks: who had a message in hand that the server has forgotten may take up its run after the first.
	refillAgain = soonLost + 5*time.Second
	// leaseOfRefill and refillLease are the lease on both of them, after the start of one process. What was removed of runs is looked up before
	// what they miss is published: who has stood still meanwhile must not go on, because more may have been removed since.
	leaseOfRefill = "refill_"
	refillLease   = 30 * time.Second
	// unservedAgents is what stands for an agent's name for those of broker.Unserved.
	unservedAgents = "(those that nobody serves)"
	// seenEvery is how often it is noted that a server is there.
	seenEvery = time.Hour
)

// AfterRestarts refills streams whenever the server is another process, until ctx ends: a server that is killed, or loses its power, may have
// forgotten what it confirmed, and one that was stopped may have been given the files of an older copy. Of all processes that notice it one
// does it for an agent, and another one if that one dies.
func AfterRestarts(ctx context.Context, o Options) {
	log := o.Logger
	o.Found = func(f Finding) { logFinding(log, f) }
	connected := make(chan struct{}, 1)
	defer o.Conn.OnReconnect(func() {
		select {
		case connected <- struct{}{}:
		default: // it is looked anyway
		}
	})()
	refills := refills{Options: o, mine: map[string]*refilling{}, failing: map[string]*failing{}}
	defer refills.giveUp()
	for {
		wait := seenEvery
		if left := refills.look(ctx); left {
			wait = lossAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-connected:
		case <-time.After(wait):
		}
	}
}

// refills are what AfterRestarts knows.
type refills struct {
	Options
	// server is the process that was looked at last; mine is what this process refills since, by the token of the agent.
	server string
	mine   map[string]*refilling
	// failing are those that could not be refilled here, by the token of the agent.
	failing map[string]*failing
}

// failing is tried again at a time, each time later: it may be for hours, as while its tools are away, and each pass reads the heads of all runs.
type failing struct {
	pauses *retry.Sequence
	until  time.Time
}

// refilling is under way, by who holds its lease. first is when the first pass ended; zero is that it has not.
type refilling struct {
	lease *broker.Hold
	first time.Time
}

// giveUp leaves what is under way to others.
func (r *refills) giveUp() {
	for token := range r.mine {
		r.drop(token)
	}
}

// later has an attempt wait for the next one, and returns for how long.
func (r *refills) later(token string) time.Duration {
	f := r.failing[token]
	if f == nil {
		f = &failing{pauses: tryingAgain(sdk.DefaultLostAfter).Start()}
		r.failing[token] = f
	}
	wait := f.pauses.Next()
	f.until = time.Now().Add(wait)
	return wait
}

// leave lets another process try, which may be able to do what this one was not.
func (r *refills) leave(ctx context.Context, token string) {
	held := !r.mine[token].lease.Lost()
	r.drop(token)
	if !held || ctx.Err() != nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, lossAgain)
	defer cancel()
	if err := r.Conn.EndLease(bounded, r.leaseOf(token)); err != nil {
		r.Logger.Warn("a lease is left until it ends by itself", "in", refillLease, "error", err)
	}
}

func (r *refills) leaseOf(token string) string { return leaseOfRefill + r.server + "_" + token }

func (r *refills) drop(token string) {
	r.mine[token].lease.Close()
	delete(r.mine, token)
}

// look does what there is to do, and reports whether something may be left.
func (r *refills) look(ctx context.Context) (left bool) {
	server := r.Conn.Server()
	if server == "" {
		return false
	}
	if server != r.server {
		r.giveUp()
		clear(r.failing)
		r.server = server
	}
	var agents, unserved []refillable
	for _, f := range r.all() {
		due, done, err := r.due(ctx, &f)
		if err != nil && ctx.Err() == nil {
			r.Logger.Warn("it is not known whether the server has forgotten anything; trying again", "agent", f.name, "in", lossAgain, "error", err)
		}
		left = left || !done
		switch {
		case due && f.agent != nil:
			agents = append(agents, f)
		case due:
			unserved = append(unserved, f)
		}
	}
	r.refill(ctx, agents, refillAgents)
	r.refill(ctx, unserved, refillUnserved)
	return left
}

// refillable is what one process refills: what is an agent's, or nobody's. seen is what was noted of it last.
type refillable struct {
	token, name string
	agent       *sdk.AgentSpec
	seen        broker.Refilled
}

func (r *refills) all() []refillable {
	var all []refillable
	for i := range r.Agents {
		a := &r.Agents[i]
		all = append(all, refillable{token: wire.NameToken(a.Name), name: a.Name, agent: a})
	}
	if r.Refuse != nil {
		all = append(all, refillable{token: broker.Unserved, name: unservedAgents})
	}
	return all
}

// due reports whether this process is to refill something now, and has its lease; done is that nobody has to.
func (r *refills) due(ctx context.Context, f *refillable) (due, done bool, err error) {
	if f.seen, err = r.Conn.Refilled(ctx, f.token); err != nil {
		return false, false, err
	}
	if f.seen.Server == r.server {
		delete(r.failing, f.token)
		if r.mine[f.token] != nil { // nobody has said that the note was written
			r.drop(f.token)
		}
		if time.Since(time.UnixMilli(f.seen.At)) > seenEvery {
			err = r.Conn.NoteRefilled(ctx, f.token, r.server)
		}
		return false, err == nil, err
	}
	if failed := r.failing[f.token]; failed != nil && time.Now().Before(failed.until) {
		return false, false, nil
	}
	mine, err := r.take(ctx, f.token)
	if err != nil || mine == nil {
		return false, false, err
	}
	return mine.first.IsZero() || time.Since(mine.first) >= refillAgain, false, nil
}

// refill refills what is due in one pass, which reads the heads of all runs, however many agents they are of.
func (r *refills) refill(ctx context.Context, due []refillable, pass func(context.Context, Options, map[string]time.Time) refilled) {
	if len(due) == 0 {
		return
	}
	o, now, held := r.Options, newPass(r.Options).now, ctx
	o.Agents = nil
	from := map[string]time.Time{}
	for _, f := range due {
		from[f.token] = since(f.seen, now)
		if f.agent != nil {
			o.Agents = append(o.Agents, *f.agent)
		}
		var end func()
		held, end = r.mine[f.token].lease.While(held)
		defer end()
	}
	come := pass(held, o, from)
	var done []string
	for _, f := range due {
		problem := r.passed(ctx, held, f, errors.Join(come.err, come.failed[f.token]))
		switch {
		case problem == nil:
			done = append(done, f.name)
			delete(r.failing, f.token)
		case ctx.Err() == nil:
			r.Logger.Warn("it is not known whether the server has forgotten anything; trying again", "agent", f.name, "in", r.later(f.token), "error", problem)
		}
	}
	if len(done) > 0 && due[0].seen.Server != "" { // else nobody knows of another process
		r.Logger.Info("the server was started again; what runs have lately had published is there", "agents", done, "runs", come.report.Runs)
	}
}

// passed settles what a pass has come to for one of those that it was for, and returns why it is to be made again. After the second one it is
// noted that it is done.
func (r *refills) passed(ctx, held context.Context, f refillable, problem error) error {
	mine := r.mine[f.token]
	again := !mine.first.IsZero()
	if problem == nil && again {
		problem = r.Conn.NoteRefilled(held, f.token, r.server)
	}
	if lost := context.Cause(held); lost != nil {
		problem = lost // or it may be
	}
	switch {
	case problem != nil:
		r.leave(ctx, f.token)
	case again:
		r.drop(f.token)
	default:
		mine.first = time.Now()
	}
	return problem
}

// take is what this process refills for an agent; nil is that another does.
func (r *refills) take(ctx context.Context, token string) (*refilling, error) {
	mine := r.mine[token]
	if mine != nil && mine.lease.Lost() {
		r.drop(token)
		mine = nil
	}
	if mine == nil {
		lease, err := r.Conn.Hold(ctx, r.leaseOf(token), refillLease)
		if err != nil || lease == nil {
			return nil, err
		}
		mine = &refilling{lease: lease}
		r.mine[token] = mine
	}
	return mine, nil
}

// since is from when on entries are looked at whose events the server may have forgotten: it was there when it was last seen.
func since(seen broker.Refilled, now time.Time) time.Time {
	if seen.At > 0 && seen.At < now.UnixMilli() {
		now = time.UnixMilli(seen.At)
	}
	return now.Add(-forgotten)
}

package runner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"agentd/internal/core"
)

// Isolation lets the activations of a process work side by side, and one that must be alone only when nobody else is at work. Who
// waits is let in in the order of arrival, so that neither kind keeps the other out for ever. All runners of a process share
// one. The zero Isolation keeps nobody out.
type Isolation struct {
	mu sync.Mutex
	// inside is how many are at work; alone is the one that must be alone, if it is inside.
	inside  int
	alone   *pass
	waiting []*pass
}

// pass is one's place in an Isolation. call calls who waits there.
type pass struct {
	alone, inside bool
	call          func()
}

// arrive returns a place in the queue, or inside if nobody is before it.
func (g *Isolation) arrive(alone bool) *pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &pass{alone: alone}
	g.waiting = append(g.waiting, p)
	g.admit()
	return p
}

// admit lets in whoever may.
func (g *Isolation) admit() {
	for len(g.waiting) > 0 {
		next := g.waiting[0]
		if g.alone != nil || next.alone && g.inside > 0 {
			return
		}
		g.waiting = g.waiting[1:]
		next.inside = true
		g.inside++
		if next.call != nil {
			next.call()
		}
		if next.alone {
			g.alone = next
		}
	}
}

// admitted reports whether p is inside, and if not who is alone there.
func (g *Isolation) admitted(p *pass) (inside bool, alone *pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.inside, g.alone
}

// onceAdmitted has call called when p is let in, unless it is inside.
func (g *Isolation) onceAdmitted(p *pass, call func()) (inside bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.call = call
	return p.inside
}

// leave gives the place up, wherever it is.
func (g *Isolation) leave(p *pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.inside {
		p.inside = false
		g.inside--
	}
	if g.alone == p {
		g.alone = nil
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(o *pass) bool { return o == p })
	g.admit()
}

// join lets others in beside p, if it is alone.
func (g *Isolation) join(p *pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone == p {
		g.alone = nil
		g.admit()
	}
}

// crowded reports whether somebody waits for all others to leave.
func (g *Isolation) crowded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.waiting, func(p *pass) bool { return p.alone })
}

// errSuspect says that the activation is about to drive a run that may be what ended its former drivers, beside others.
var errSuspect = errors.New("the run must be driven alone")

// errDrained says that a worker ends before a message's turn came.
var errDrained = errors.New("the worker ends")

// Who waits is called when it is let in, and looks who keeps it out after a pause that doubles up to longestWait.
const (
	shortestWait = 50 * time.Millisecond
	longestWait  = time.Second
)

// enter waits until the activation may work, beside others unless it is to be alone. Nobody waits for one that takes longer than any step does: whoever hangs
// is not alone any more, its delivery is given up, and who cannot be alone because of it goes on beside it, so that its own
// death proves nothing.
func (a *activation) enter(ctx context.Context) error {
	a.pass = a.Isolation.arrive(a.alone)
	var before *pass
	since := a.Env.Now()
	for wait := shortestWait; ; wait = min(2*wait, longestWait) {
		inside, first := a.Isolation.admitted(a.pass)
		switch hung := a.Env.Now()-since > a.Silence.Milliseconds(); {
		case inside:
			return nil
		case a.draining.Load():
			return errDrained
		case first != nil && first != before:
			before, since = first, a.Env.Now()
		case hung && first != nil:
			a.Isolation.join(first)
			continue
		case hung && a.alone:
			a.Logger.WarnContext(ctx, "others do not finish, so a run that may end its worker is driven beside them", "run", a.head.Run)
			a.Isolation.leave(a.pass)
			a.alone, a.beside = false, true
			return a.enter(ctx)
		}
		if err := a.wait(ctx, wait); err != nil {
			return err
		}
		a.progress()
	}
}

// wait waits until the activation is let in, or for so long.
func (a *activation) wait(ctx context.Context, most time.Duration) error {
	waiting, call := context.WithCancel(ctx)
	defer call()
	if a.Isolation.onceAdmitted(a.pass, call) {
		return nil
	}
	if err := a.Env.Sleep(waiting, most); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// enterAlone leaves the others and comes back alone.
func (a *activation) enterAlone(ctx context.Context) error {
	a.Isolation.leave(a.pass)
	a.alone = true
	return a.enter(ctx)
}

// suspect reports whether the activation is about to drive a run beside others that it must drive alone.
func (a *activation) suspect(d *core.Driver) bool {
	return d.Suspect() && d.Owner == a.owner && !a.alone && !a.beside
}

package broker

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Beat calls beat each d, in a goroutine that there is only then, until beat returns false or stop is called. Stop waits for a beat that is
// under way, and panics with what beat has panicked with, once; it may be repeated. Deliveries are extended so: most are settled before the
// first beat, and cost a timer.
func Beat(d time.Duration, beat func() (goOn bool)) (stop func()) {
	p := &pulse{every: d, beat: beat}
	p.beaten.L = &p.mu
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(d, p.fire)
	return p.stop
}

// pulse is what beats.
type pulse struct {
	every time.Duration
	beat  func() bool

	mu               sync.Mutex
	timer            *time.Timer
	beating, stopped bool
	// panicked is what beat has panicked with.
	panicked string
	// beaten is signalled when a beat has ended.
	beaten sync.Cond
}

func (p *pulse) fire() {
	if !p.begin() {
		return
	}
	goOn, panicked := false, ""
	defer func() { p.end(goOn, panicked) }()
	defer func() {
		if r := recover(); r != nil {
			panicked = fmt.Sprintf("%v\n%s", r, debug.Stack())
		}
	}()
	goOn = p.beat()
}

func (p *pulse) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beating = !p.stopped
	return p.beating
}

func (p *pulse) end(goOn bool, panicked string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beating, p.panicked = false, panicked
	p.beaten.Broadcast()
	if goOn && !p.stopped {
		p.timer.Reset(p.every)
	}
}

func (p *pulse) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
	for p.beating {
		p.beaten.Wait()
	}
	if panicked := p.panicked; panicked != "" {
		p.panicked = ""
		panic(panicked)
	}
}

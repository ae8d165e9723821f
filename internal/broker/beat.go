package broker

import (
	"sync"
	"time"
)

// Beat calls beat each d, in a goroutine that there is only then, until beat returns false or stop is called. Stop waits for a beat that is
// under way; it may be repeated. Deliveries are extended so: most are settled before the first beat, and cost a timer.
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
	// beaten is signalled when a beat has ended.
	beaten sync.Cond
}

func (p *pulse) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.beating = true
	p.mu.Unlock()
	goOn := p.beat()
	p.mu.Lock()
	p.beating = false
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
}

package service

// hands are the goroutines that handlers run in. Who has finished takes the next call: its stack has grown as far as handlers need it to,
// and to grow another takes longer than most else that is done for a call. There are about as many as calls were handled at a time.
type hands struct {
	next chan func()
	// ended has those leave that have nothing to do.
	ended chan struct{}
}

func newHands() *hands { return &hands{next: make(chan func()), ended: make(chan struct{})} }

// do runs f in another goroutine, at once.
func (h *hands) do(f func()) {
	select {
	case h.next <- f:
	default:
		go h.work(f)
	}
}

func (h *hands) work(f func()) {
	for {
		f()
		select {
		case f = <-h.next:
		case <-h.ended:
			return
		}
	}
}

// end is called once. Who is called afterwards leaves when that is done.
func (h *hands) end() { close(h.ended) }

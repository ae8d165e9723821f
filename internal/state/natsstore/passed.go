package natsstore

import (
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// passed is how far a search for the last own message on a subject is: own is the sequence of the last one before end, 0 if none is.
type passed struct{ own, end uint64 }

func (p *passed) take(m *jetstream.RawStreamMsg) {
	if !foreign(m) {
		p.own = m.Sequence
	}
	p.end = m.Sequence + 1
}

// mostSearches bounds the subjects whose searches are remembered. Few subjects have foreign messages at all.
const mostSearches = 1024

// searches remembers where searches ended. Safe for concurrent use.
type searches struct {
	mu sync.Mutex
	by map[string]passed
}

// on is where a search on a subject can begin that ends before a sequence.
func (s *searches) on(subject string, end uint64) passed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.by[subject]; ok && p.end <= end {
		return p
	}
	return passed{end: 1}
}

func (s *searches) keep(subject string, p passed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil || len(s.by) >= mostSearches {
		s.by = map[string]passed{}
	}
	s.by[subject] = p
}

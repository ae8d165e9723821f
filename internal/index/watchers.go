package index

import (
	"context"
	"sync"
)

// watched is how many changes wait for a reader at most.
const watched = 256

// Watchers are those who want changes. The zero Watchers has none. Safe for concurrent use.
type Watchers struct {
	mu       sync.Mutex
	channels map[chan Document]struct{}
}

// Changes implements Index.
func (s *Watchers) Changes(ctx context.Context) <-chan Document {
	c := make(chan Document, watched)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels == nil {
		s.channels = map[chan Document]struct{}{}
	}
	s.channels[c] = struct{}{}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(c)
	})
	return c
}

// Tell sends a change to all, and leaves out those who are too slow from now on.
func (s *Watchers) Tell(d Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.channels {
		select {
		case c <- d:
		default:
			s.end(c)
		}
	}
}

func (s *Watchers) end(c chan Document) {
	if _, open := s.channels[c]; open {
		delete(s.channels, c)
		close(c)
	}
}

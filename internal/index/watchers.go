package index

import (
	"context"
	"sync"
)

// watched is how often a reader may be told of changes that it has not read yet.
const watched = 64

// Watchers are those who want changes. The zero Watchers has none. Safe for concurrent use.
type Watchers struct {
	mu       sync.Mutex
	channels map[chan []Document]struct{}
}

// Changes implements Index.
func (s *Watchers) Changes(ctx context.Context) <-chan []Document {
	c := make(chan []Document, watched)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels == nil {
		s.channels = map[chan []Document]struct{}{}
	}
	s.channels[c] = struct{}{}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(c)
	})
	return c
}

// Tell sends changes to all, who share the slice and only read it, and leaves out those who are too slow from now on.
func (s *Watchers) Tell(changes []Document) {
	if len(changes) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.channels {
		select {
		case c <- changes:
		default:
			s.end(c)
		}
	}
}

func (s *Watchers) end(c chan []Document) {
	if _, open := s.channels[c]; open {
		delete(s.channels, c)
		close(c)
	}
}

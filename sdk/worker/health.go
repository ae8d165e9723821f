package worker

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"agentd/internal/httpguard"
)

// readyTimeout bounds the answer to /readyz: a prober does not wait for long.
const readyTimeout = 2 * time.Second

// answering is how long a prober may take for its request, and for reading the answer.
const answering = 30 * time.Second

// health answers /livez, /readyz and /metrics. Its zero value is alive and not ready.
type health struct {
	mu sync.Mutex
	// ready is what decides about readiness. Until it is for the first time, before may be in its place.
	ready, before func(context.Context) error
	// ended says that nobody is ready any more.
	ended bool
}

// set changes what decides about readiness. A worker that takes over has not looked at its servers yet.
func (h *health) set(ready func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.ready, h.before = ready, h.ready
	}
}

func (h *health) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready, h.before, h.ended = nil, nil, true
}

// listen serves on address, if there is one, until stop is called.
func (h *health) listen(ctx context.Context, address string, metrics http.Handler) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	l, err := httpguard.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, h.check(r.Context())) })
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	server := httpguard.Server(mux, answering)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		err := errors.Join(server.Shutdown(stopping), <-done)
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}, nil
}

var errNotServing = errors.New("the worker is not serving: it starts, or stops")

func (h *health) check(ctx context.Context) error {
	h.mu.Lock()
	ready, before := h.ready, h.before
	h.mu.Unlock()
	if ready == nil {
		return errNotServing
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := ready(ctx)
	if before == nil {
		return err
	}
	if err != nil && before(ctx) == nil {
		return nil
	}
	h.mu.Lock()
	h.before = nil
	h.mu.Unlock()
	return err
}

// answer is "ok", or 503 with the reason.
func answer(w http.ResponseWriter, problem error) {
	text := "ok\n"
	if problem != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = problem.Error() + "\n"
	}
	_, _ = w.Write([]byte(text)) // the prober went away
}

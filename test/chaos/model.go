package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"agentd/sdk/wire"
)

// modelServer is the model of all workers. It knows which calls it had before.
type modelServer struct {
	url    string
	server http.Server
	served chan error

	mu        sync.Mutex
	rng       *rand.Rand
	scenarios map[string]*scenario
	// asked counts the calls for each turn of each run.
	asked map[turn]int
	// forgotten are the runs whose journal was lost: a second time they come to an end at once.
	forgotten map[string]bool
	// away is how whoever asks is turned away, unless it is 0: an HTTP status, or hangUp.
	away int
}

// turn is one step of a run.
type turn struct {
	run string
	n   int
}

func serveModel(ctx context.Context, seed uint64) (*modelServer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &modelServer{
		url: "http://" + l.Addr().String(), served: make(chan error, 1), rng: rand.New(rand.NewPCG(seed, 1)),
		scenarios: map[string]*scenario{}, asked: map[turn]int{}, forgotten: map[string]bool{},
	}
	all := scenarios()
	for i := range all {
		m.scenarios[all[i].name] = &all[i]
	}
	m.server.Handler = http.HandlerFunc(m.answer)
	go func() { m.served <- m.server.Serve(l) }()
	return m, nil
}

func (m *modelServer) close() error {
	err := m.server.Close()
	if served := <-m.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// hangUp breaks connections off without an answer.
const hangUp = -1

// goAway has the model turn away whoever asks it, until comeBack is called.
func (m *modelServer) goAway(how int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = how
}

func (m *modelServer) comeBack() { m.goAway(0) }

// turnedAway reports whether the model is away, and turns the request away then.
func (m *modelServer) turnedAway(w http.ResponseWriter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.away {
	case 0:
		return false
	case hangUp:
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(m.away)
	return true
}

func (m *modelServer) answer(w http.ResponseWriter, r *http.Request) {
	if m.turnedAway(w) {
		return
	}
	var p prompt
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, ok := m.say(p)
	if !ok {
		http.Error(w, "no scenario "+p.Message, http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // the worker may be dead by now
}

func (m *modelServer) say(p prompt) (reply, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	latency := time.Duration(1+m.rng.IntN(25)) * time.Millisecond
	switch p.Agent { // whose calls are not counted: a turn has several of them
	case planModel:
		return reply{Text: plan(m.rng), Latency: latency}, true
	case routeModel:
		return reply{Calls: routed(m.rng, p.Message), Latency: latency}, true
	}
	s, ok := m.scenarios[p.Message]
	if !ok {
		return reply{}, false
	}
	m.asked[turn{p.Run, p.Turn}]++
	n := p.Turn
	if m.forgotten[p.Run] {
		n = len(s.turns)
	}
	return s.says(m.rng, n), true
}

// forget has the run end when it begins anew.
func (m *modelServer) forget(run string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgotten[run] = true
}

// calls returns how many calls there were for each run, in all, and how many repeated a turn.
func (m *modelServer) calls() (byRun map[wire.RunKey]int, all, repeated int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	byRun = map[wire.RunKey]int{}
	for t, n := range m.asked {
		byRun[wire.NewRunKey(t.run)] += n
		all += n
		repeated += n - 1
	}
	return byRun, all, repeated
}

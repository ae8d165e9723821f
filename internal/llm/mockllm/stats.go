package mockllm

import (
	"strconv"
	"sync"
)

// Stats is what GET /stats returns.
type Stats struct {
	// Requests counts all chat completions that were asked for; each is answered, a fault or a mismatch.
	Requests   int `json:"requests"`
	Answered   int `json:"answered"`
	Faults     int `json:"faults"`
	Mismatches int `json:"mismatches"`
	// Conversations and Turns count what was answered, each once. Repeats counts further answers to the same turn of the
	// same conversation. Conversations are told apart by the run's header, else by their first user message.
	Conversations int `json:"conversations"`
	Turns         int `json:"turns"`
	Repeats       int `json:"repeats"`
	// Details are the first mismatches.
	Details []Mismatch `json:"details"`
}

// Mismatch is a refused request.
type Mismatch struct {
	Run     string `json:"run,omitempty"`
	Turn    int    `json:"turn"`
	Message string `json:"message"`
}

const maxDetails = 100

// ledger counts. Its sets grow with the number of turns.
type ledger struct {
	mu            sync.Mutex
	stats         Stats
	conversations map[string]bool
	turns         map[string]bool
	faults        map[string]int
}

func newLedger() *ledger {
	return &ledger{conversations: map[string]bool{}, turns: map[string]bool{}, faults: map[string]int{}}
}

func turnKey(key string, turn int) string { return strconv.Itoa(turn) + " " + key }

func (l *ledger) request() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Requests++
}

func (l *ledger) answered(key string, turn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Answered++
	if l.turns[turnKey(key, turn)] {
		l.stats.Repeats++
		return
	}
	l.turns[turnKey(key, turn)] = true
	l.conversations[key] = true
}

func (l *ledger) mismatch(m Mismatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Mismatches++
	if len(l.stats.Details) < maxDetails {
		l.stats.Details = append(l.stats.Details, m)
	}
}

// fault takes the next of faults that is due for this turn, if any is left.
func (l *ledger) fault(key string, turn int, faults []Fault) (Fault, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	past := l.faults[turnKey(key, turn)]
	for _, f := range faults {
		times := max(f.Times, 1)
		if f.Times < 0 || past < times {
			l.faults[turnKey(key, turn)]++
			l.stats.Faults++
			return f, true
		}
		past -= times
	}
	return Fault{}, false
}

func (l *ledger) snapshot() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Conversations, s.Turns = len(l.conversations), len(l.turns)
	s.Details = append([]Mismatch{}, s.Details...)
	return s
}

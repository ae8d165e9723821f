package conformance

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentd/internal/broker/streams"
)

// message is what somebody published.
type message struct {
	subject string
	headers map[string][]string
	data    []byte
}

// trace keeps what programs publish, in order.
type trace struct {
	mu       sync.Mutex
	messages []message
	// changed is closed, and replaced, with every message.
	changed chan struct{}
}

func newTrace() *trace { return &trace{changed: make(chan struct{})} }

const ackPrefix = "$JS.ACK."

func (t *trace) add(subject string, headers map[string][]string, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.messages = append(t.messages, message{subject, headers, data})
	close(t.changed)
	t.changed = make(chan struct{})
}

// all are the messages until now, and what is closed with the next.
func (t *trace) all() ([]message, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.messages[:len(t.messages):len(t.messages)], t.changed
}

// count is how many messages there are.
func (t *trace) count() int {
	messages, _ := t.all()
	return len(messages)
}

// find waits for a message that is wanted and returns its index; -1 if none came within patience.
func (t *trace) find(ctx context.Context, patience time.Duration, wanted func(message) bool) (int, error) {
	return t.findFrom(ctx, 0, patience, wanted)
}

// findFrom is find among the messages from an index on.
func (t *trace) findFrom(ctx context.Context, from int, patience time.Duration, wanted func(message) bool) (int, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for next := from; ; {
		messages, changed := t.all()
		for ; next < len(messages); next++ {
			if wanted(messages[next]) {
				return next, nil
			}
		}
		select {
		case <-changed:
		case <-late.C:
			return -1, nil
		case <-ctx.Done():
			return -1, ctx.Err()
		}
	}
}

// What a reader may say of a delivery.
type settlement int

const (
	notOfDelivery settlement = iota
	acknowledged
	inProgress
	givenBack
	// responded is something that no reader may say there: an answer, as a rule.
	responded
)

// stored is where a message is stored.
type stored struct {
	zone     streams.Zone
	stream   string
	sequence uint64
}

// of is what a message says of the delivery of a stored one.
func (m message) of(at stored) settlement {
	rest, ok := strings.CutPrefix(m.subject, ackPrefix)
	if !ok {
		return notOfDelivery
	}
	// <stream>.<consumer>.<delivered>.<stream sequence>.<consumer sequence>.<time>.<pending>, after <domain>.<account> and before
	// a random token in the newer form.
	tokens := strings.Split(rest, ".")
	if len(tokens) > 7 {
		tokens = tokens[2:]
	}
	if len(tokens) < 7 || tokens[0] != at.stream || tokens[3] != strconv.FormatUint(at.sequence, 10) {
		return notOfDelivery
	}
	switch text := string(m.data); {
	case text == "", strings.HasPrefix(text, "+ACK"), strings.HasPrefix(text, "+NXT"), strings.HasPrefix(text, "+TERM"):
		return acknowledged
	case strings.HasPrefix(text, "+WPI"):
		return inProgress
	case strings.HasPrefix(text, "-NAK"):
		return givenBack
	}
	return responded
}

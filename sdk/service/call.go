package service

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"agentd/internal/broker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Call is what a handler may know of a call beside its data.
type Call struct {
	// IdempotencyKey is the same for all deliveries and attempts of a call, and no other call's.
	IdempotencyKey string
	// Attempt counts the caller's attempts at the call, from 1.
	Attempt int
	// Version is the version of the contract that was called.
	Version string
	// Event is the call as it came, without defaults. Its Subject names the run, Agent who asks.
	Event wire.Event

	// subject is where the call was delivered.
	subject string
	// due is when the call's context ends.
	due time.Time
}

// Answer is what a handler returns to choose the type or the cost of its answer.
type Answer struct {
	// Type is one of the types that the called version emits; it may be empty when there is only one.
	Type string
	// Data is encoded to a JSON object.
	Data any
	// Units is what the answer cost; 0 means the service's own (see Units).
	Units sdk.Units
}

// readCall decodes a delivery. What its tokens say and what the event says must be the same: authorisation is by subject.
func (s *serving) readCall(a wire.Address, d broker.Delivery) (Call, error) {
	event, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		return Call{}, err
	}
	var faults []sdk.Fault
	ref, ok := wire.ParseCallRef(a.Call.Call)
	if !ok {
		faults = append(faults, sdk.Fault{Path: "the subject's last token", Expected: "a call's id", Got: a.Call.Call})
	}
	if event.ID != a.Call.Call {
		faults = append(faults, sdk.Fault{Path: "$.id", Expected: "the subject's last token", Got: strconv.Quote(event.ID)})
	}
	if wire.NewRunKey(event.Subject) != a.Run {
		faults = append(faults, sdk.Fault{
			Path: "$.subject", Expected: "the run that the subject names", Got: strconv.Quote(event.Subject),
		})
	}
	if len(faults) > 0 {
		return Call{}, &sdk.Error{Code: sdk.CodeInvalidEvent, Message: "the event is not a call on its subject", Faults: faults}
	}
	return Call{
		IdempotencyKey: ref.ID, Attempt: ref.Attempt, Event: event, subject: d.Subject(), due: s.due(event),
	}, nil
}

// due is when the call's context ends: as the call says, else after the service's own timeout.
func (s *serving) due(call wire.Event) time.Time {
	if text, ok := call.Extensions[wire.ExpiryTime].(string); ok {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err == nil {
			return at
		}
		s.log.Warn("deadline of a call cannot be read; the service's timeout holds", "call", call.ID, "error", err)
	}
	return time.Now().Add(s.timeout)
}

// The JSON of handlers is that of encoding/json, because that is what people's types are made for, without what would
// make a handler see other data than was checked (names in another case, names twice), and with empty slices and maps in
// place of null, which hardly a schema allows.
var jsonOptions = jsonv2.JoinOptions(
	jsonv1.DefaultOptionsV1(), jsonv2.MatchCaseInsensitiveNames(false), jsonv2.FormatNilSliceAsNull(false),
	jsonv2.FormatNilMapAsNull(false), jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false),
	jsontext.EscapeForHTML(false),
)

func decode(data json.RawMessage, into any) error { return jsonv2.Unmarshal(data, into, jsonOptions) }

func encode(value any) (json.RawMessage, error) { return jsonv2.Marshal(value, jsonOptions) }

// activeCalls are those that are handled here now, and the last ones that were voided.
type activeCalls struct {
	mu     sync.Mutex
	cancel map[string]context.CancelCauseFunc
	// voided has the ids of calls, order the same ids in a ring, the oldest at next.
	voided map[string]bool
	order  []string
	next   int
}

// remembered is how many voided calls are known, so that one that still waits for a slot is not begun.
const remembered = 4096

// admission is what becomes of a call that is delivered.
type admission int

const (
	begun   admission = iota
	running           // the call is handled here already
	void              // nobody waits for the call
)

func newActiveCalls() *activeCalls {
	return &activeCalls{cancel: map[string]context.CancelCauseFunc{}, voided: map[string]bool{}}
}

// begin registers a call; its context ends when the call is voided. After begun, end must be called.
func (a *activeCalls) begin(ctx context.Context, id string) (context.Context, admission) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.cancel[id] != nil:
		return ctx, running
	case a.voided[id]:
		return ctx, void
	}
	ctx, a.cancel[id] = context.WithCancelCause(ctx)
	return ctx, begun
}

func (a *activeCalls) end(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel[id](nil)
	delete(a.cancel, id)
}

// void cancels a call, or keeps it from beginning.
func (a *activeCalls) void(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel, ok := a.cancel[id]; ok {
		cancel(errVoided)
	}
	if a.voided[id] {
		return
	}
	a.voided[id] = true
	if len(a.order) < remembered {
		a.order = append(a.order, id)
		return
	}
	delete(a.voided, a.order[a.next])
	a.order[a.next] = id
	a.next = (a.next + 1) % remembered
}

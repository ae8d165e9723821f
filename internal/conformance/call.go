package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/clip"
	"agentd/internal/contracts"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	agent       = "conformance"
	traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	team        = "team-red"
	// window is when calls are due that are not about it.
	window = 5 * time.Minute
	// contentType is the header that says in which mode an event is.
	contentType = "Content-Type"
)

// call is a call as a worker makes it.
type call struct {
	event   wire.Event
	at      wire.CallAddress
	subject string
	// reply is where its answer belongs, and where its event says so.
	reply string
	// stored is where it is, each time that it was published.
	stored []stored
}

// call is a new call of a run of its own, with data.
func (s *session) call(data json.RawMessage) (*call, error) {
	s.made++
	return s.callOf(fmt.Sprintf("conformance/%d", s.made), data)
}

// callOf is the call of a run.
func (s *session) callOf(run string, data json.RawMessage) (*call, error) {
	data, err := s.compiled.Accepts.ApplyDefaults(data)
	if err != nil {
		return nil, err
	}
	if data, err = wire.Canonicalize(data); err != nil {
		return nil, err
	}
	key := wire.NewRunKey(run)
	id := wire.CallID(key, wire.InitToken("agentd:/conformance", run), 1, 0, "conformance", data)
	c := &call{event: wire.Event{
		Type: s.Contract.Type, Subject: run, Time: time.Now(), DataContentType: wire.ContentTypeJSON,
		DataSchema: sdk.SchemaRef(s.Contract.URI, s.version), Data: data, To: s.Contract.Type, AccessControl: team,
		ParentID: "init-1", Domain: s.Contract.Domain, Agent: agent, TraceState: "vendor=1",
		Extensions: map[string]any{wire.ExpiryTime: time.Now().Add(window).UTC().Format(time.RFC3339Nano)},
	}}
	c.at = wire.CallAddress{
		Domain: wire.DomainToken(s.Contract.Domain), Type: wire.NameToken(s.Contract.Type), Agent: agent, Run: key,
	}
	s.name(c, id)
	return c, nil
}

// name gives a call its id.
func (s *session) name(c *call, id string) {
	c.at.Call, c.event.ID, c.event.TraceParent = id, id, wire.EventTrace(traceparent, id)
	c.subject, c.reply = s.conn.Subjects().Call(c.at), s.conn.Subjects().Reply(c.at)
	c.event.Source, c.event.RedirectTo = c.reply, c.reply
}

// put publishes a call, again if it was already.
func (s *session) put(ctx context.Context, c *call) error {
	body, err := c.event.Encode()
	if err != nil {
		return err
	}
	return s.putBody(ctx, c, body)
}

// putBody publishes bytes in place of a call's event.
func (s *session) putBody(ctx context.Context, c *call, body []byte) error {
	sequence, err := s.conn.Put(ctx, c.subject, map[string][]string{
		contentType: {wire.ContentTypeStructured}, "agentd-reply": {c.event.RedirectTo},
	}, body)
	c.stored = append(c.stored, s.placed(c, sequence))
	return err
}

// placed is where a message of a call is stored under a sequence.
func (s *session) placed(c *call, sequence uint64) stored {
	z := s.layout.OfRun(streams.Out, c.at.Run)
	return stored{z, streams.Name(s.conn.Subjects(), z), sequence}
}

// settled waits until a stored message is acknowledged.
func (s *session) settled(ctx context.Context, put stored, patience time.Duration) error {
	at, err := s.seen.find(ctx, patience, func(m message) bool { return m.of(put) == acknowledged })
	if err == nil && at < 0 {
		return failed("it is not acknowledged within %s", patience)
	}
	return err
}

// finish waits until all that was published of a call is acknowledged.
func (s *session) finish(ctx context.Context, c *call) error {
	for _, put := range c.stored {
		if err := s.settled(ctx, put, s.Patience); err != nil {
			return err
		}
	}
	return nil
}

// stored are the answers to a call that the stream has.
func (s *session) stored(ctx context.Context, c *call) ([]broker.Stored, error) {
	var found []broker.Stored
	err := s.conn.Scan(ctx, streams.In, c.reply, 1, func(m broker.Stored) (bool, error) {
		found = append(found, m)
		return true, nil
	})
	return found, err
}

// unanswered is a finding if there is an answer to a call, also after a further call was answered.
func (s *session) unanswered(ctx context.Context, c *call) error {
	if _, err := s.exchange(ctx, s.valid); err != nil {
		return err
	}
	answers, err := s.stored(ctx, c)
	if err == nil && len(answers) > 0 {
		return failed("it is answered: %s", quoted(answers[0].Data))
	}
	return err
}

// exchange makes a call with data and returns its answer.
func (s *session) exchange(ctx context.Context, data json.RawMessage) (wire.Event, error) {
	c, err := s.call(data)
	if err != nil {
		return wire.Event{}, err
	}
	return s.ask(ctx, c)
}

// ask publishes a call and returns its answer.
func (s *session) ask(ctx context.Context, c *call) (wire.Event, error) {
	if err := s.put(ctx, c); err != nil {
		return wire.Event{}, err
	}
	if err := s.finish(ctx, c); err != nil {
		return wire.Event{}, err
	}
	return s.answer(ctx, c)
}

// answer is the one answer to a call that was acknowledged.
func (s *session) answer(ctx context.Context, c *call) (wire.Event, error) {
	answers, err := s.stored(ctx, c)
	if err != nil {
		return wire.Event{}, err
	}
	if len(answers) == 0 {
		return wire.Event{}, failed("it is acknowledged, and %s has no answer", c.reply)
	}
	var first wire.Event
	for i, m := range answers {
		event, err := wire.DecodeEvent(m.Headers, m.Data)
		if err != nil {
			return wire.Event{}, failed("the answer is not an event: %v", err)
		}
		if i == 0 {
			first = event
		} else if event.ID != first.ID || event.Type != first.Type || string(event.Data) != string(first.Data) {
			return wire.Event{}, failed("it is answered with %s and with %s", quoted(answers[0].Data), quoted(m.Data))
		}
	}
	if len(answers) > 1 {
		s.advise("the answer is stored %d times: publish it with Nats-Expected-Last-Subject-Sequence: 0", len(answers))
	}
	return first, nil
}

// success is a finding unless an answer is of a type, with the data, that the called version emits.
func (s *session) success(answer wire.Event) error {
	if p, ok := wire.ProblemIn(answer.Type, answer.Data); ok {
		return failed("the answer is the error %s: %s", p.ErrorName, p.ErrorMessage)
	}
	emits, ok := s.compiled.Emits[answer.Type]
	if !ok {
		return failed("the answer's type is %q; version %s emits %s", answer.Type, s.version,
			strings.Join(slices.Sorted(maps.Keys(s.compiled.Emits)), ", "))
	}
	if faults := emits.Validate(answer.Data); len(faults) > 0 {
		return failed("the answer's data does not fit the contract: %s", faults[0])
	}
	return nil
}

// problem is the error that a call was answered with; a finding if it is none, or not as errors are.
func (s *session) problem(answer wire.Event) (wire.Problem, error) {
	if want := wire.ErrorType(s.Contract.Type); answer.Type != want {
		return wire.Problem{}, failed("it is answered with %s %s, not with %s", answer.Type, quoted(answer.Data), want)
	}
	var p wire.Problem
	if err := json.Unmarshal(answer.Data, &p); err != nil {
		return p, failed("the error's data cannot be read: %s", err)
	}
	if p.ErrorName == "" || p.ErrorMessage == "" {
		return p, failed("the error has no errorName, or no errorMessage: %s", quoted(answer.Data))
	}
	if p.Code == "" {
		s.advise("the error has no code")
	} else if string(p.Code) != p.ErrorName {
		s.advise("the error's errorName is %q; repeat the code, %q", p.ErrorName, p.Code)
	}
	if p.ErrorStack != nil {
		s.advise("the error has an errorStack, which others should not read")
	}
	uri, version, _ := contracts.ParseSchemaRef(answer.DataSchema)
	if answer.DataSchema != "" && (version != contracts.Wildcard || !wire.SameURI(uri, s.Contract.URI)) {
		s.advise("the error's dataschema is %q; make it %q", answer.DataSchema, sdk.SchemaRef(s.Contract.URI, contracts.Wildcard))
	}
	return p, nil
}

// quoted is data as a finding quotes it.
func quoted(data []byte) string { return clip.Text(string(data), 200) }

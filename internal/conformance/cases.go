package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"agentd/internal/broker/streams"
	"agentd/internal/contracts"
	"agentd/internal/outbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// testCase is one case. Its rule is in docs/conformance.md too.
type testCase struct {
	name, rule string
	try        func(context.Context, *session) error
	// needs is the data without which the case is skipped, for the reason without; nil is nothing.
	needs   func(*Options) json.RawMessage
	without string
	// redelivers is set where deliveries that are not extended last for soon.
	redelivers bool
}

var cases = slices.Concat(answering, delivering, lasting)

// answering is about what a service answers.
var answering = []testCase{
	{name: "answer", rule: "A call is answered with a type and data that the called version emits.", try: tryAnswer},
	{name: "attributes", rule: "An answer has the attributes of its call: parentid, subject, accesscontrol, trace, dataschema.", try: tryAttributes},
	{name: "optional", rule: "A call is answered that has no more attributes than it must.", try: tryOptional},
	{name: "extensions", rule: "Attributes that a service does not know change nothing.", try: tryExtensions},
	{name: "run-text", rule: "A run's name may hold any text, and comes back as it was.", try: tryRunText},
	{name: "reply-subject", rule: "The answer goes where the call was delivered, with in for out, whatever the event says.", try: tryReplySubject},
	{name: "contract-uri", rule: "#/a and agentd:/a name one contract.", try: tryContractURI},
	{name: "unknown-version", rule: "A call of a version that is not there is answered with the error contract_missing.", try: tryUnknownVersion},
	{name: "invalid-data", rule: "Data that the contract refuses is answered with the error contract_violation.", try: tryInvalidData},
	{
		name: "error", rule: "What a handler reports is answered as a system error.", try: tryError,
		needs: func(o *Options) json.RawMessage { return o.Fail }, without: "it needs --fail: data of a call whose handler reports an error",
	},
	{
		name: "unsendable", rule: "A call whose answer cannot be sent is answered with an error, and the service goes on.", try: tryUnsendable,
		needs:   func(o *Options) json.RawMessage { return o.Unsendable },
		without: "it needs --unsendable: data of a call whose handler returns what cannot be sent, such as 2 MiB",
	},
	{name: "not-an-event", rule: "What is not an event is acknowledged and not answered.", try: tryNotAnEvent},
	{name: "other-id", rule: "An event whose id is not the last token of its subject is acknowledged and not answered.", try: tryOtherID},
	{name: "other-run", rule: "So is one whose run is not that of its subject.", try: tryOtherRun},
}

// tryAnswer makes a call of a run of each stream that calls are divided into.
func tryAnswer(ctx context.Context, s *session) error {
	tried := map[streams.Zone]bool{}
	for len(tried) < s.layout.Partitions() {
		c, err := s.call(s.valid)
		if err != nil {
			return err
		}
		z := s.layout.OfRun(streams.Out, c.at.Run)
		if tried[z] {
			continue
		}
		tried[z] = true
		answer, err := s.ask(ctx, c)
		if err == nil {
			err = s.success(answer)
		}
		if err != nil && s.layout.Partitions() > 1 {
			return about(err, "a call on %s", streams.Name(s.conn.Subjects(), z))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func tryAttributes(ctx context.Context, s *session) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	answer, err := s.ask(ctx, c)
	if err != nil {
		return err
	}
	traceID := func(traceparent string) string {
		_, rest, _ := strings.Cut(traceparent, "-")
		id, _, _ := strings.Cut(rest, "-")
		return id
	}
	for _, a := range []struct{ name, want, got string }{
		{"parentid", c.event.ID, answer.ParentID},
		{"subject", c.event.Subject, answer.Subject},
		{"accesscontrol", c.event.AccessControl, answer.AccessControl},
		{"trace id", traceID(c.event.TraceParent), traceID(answer.TraceParent)},
		{"tracestate", c.event.TraceState, answer.TraceState},
		{"dataschema", wire.AbsoluteURI(c.event.DataSchema), wire.AbsoluteURI(answer.DataSchema)},
	} {
		switch a.got {
		case a.want:
		case "":
			s.advise("the answer has no %s", a.name)
		default:
			return failed("the answer's %s is %q, the call's %q", a.name, a.got, a.want)
		}
	}
	return nil
}

// tryChanged makes a call that is not as others are, and wants an answer all the same.
func tryChanged(ctx context.Context, s *session, change func(*wire.Event)) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	change(&c.event)
	answer, err := s.ask(ctx, c)
	if err != nil {
		return err
	}
	return s.success(answer)
}

func tryOptional(ctx context.Context, s *session) error {
	return tryChanged(ctx, s, func(e *wire.Event) {
		*e = wire.Event{ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject, DataSchema: e.DataSchema, Data: e.Data}
	})
}

func tryExtensions(ctx context.Context, s *session) error {
	return tryChanged(ctx, s, func(e *wire.Event) {
		e.Extensions["conformancetext"], e.Extensions["conformancenumber"] = "a, b", json.Number("7")
		e.Extensions["conformanceflag"], e.Extensions["conformancenull"] = true, nil
	})
}

func tryRunText(ctx context.Context, s *session) error {
	c, err := s.callOf("trip 7/ü %41 \"日本\" <x>", s.valid)
	if err != nil {
		return err
	}
	answer, err := s.ask(ctx, c)
	if err != nil {
		return err
	}
	if answer.Subject != c.event.Subject && answer.Subject != "" {
		return failed("the answer's subject is %q, the call's %q", answer.Subject, c.event.Subject)
	}
	return s.success(answer)
}

func tryReplySubject(ctx context.Context, s *session) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	other, err := s.call(s.valid)
	if err != nil {
		return err
	}
	c.event.Source, c.event.RedirectTo = other.reply, other.reply
	if err := s.put(ctx, c); err != nil {
		return err
	}
	if err := s.finish(ctx, c); err != nil {
		return err
	}
	strays, err := s.stored(ctx, other)
	if err != nil {
		return err
	}
	if len(strays) > 0 {
		return failed("it publishes where the event says: whoever can make an event decides where it publishes")
	}
	_, err = s.answer(ctx, c)
	return err
}

func tryContractURI(ctx context.Context, s *session) error {
	uri, short := wire.AbsoluteURI(s.Contract.URI), ""
	if uri == s.Contract.URI {
		if short = strings.Replace(uri, "agentd:/", "#/", 1); short == uri {
			return skipped("%s has no other form", uri)
		}
		uri = short
	}
	return tryChanged(ctx, s, func(e *wire.Event) { e.DataSchema = sdk.SchemaRef(uri, s.version) })
}

func tryUnknownVersion(ctx context.Context, s *session) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	c.event.DataSchema = sdk.SchemaRef(s.Contract.URI, "1999.12.31")
	answer, err := s.ask(ctx, c)
	if err != nil {
		return err
	}
	return s.wantProblem(answer, sdk.CodeContractMissing)
}

func tryInvalidData(ctx context.Context, s *session) error {
	if len(s.invalid) == 0 {
		return skipped("the contract takes every object that was thought of")
	}
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	c.event.Data = s.invalid
	answer, err := s.ask(ctx, c)
	if err != nil {
		return err
	}
	return s.wantProblem(answer, sdk.CodeContractViolation)
}

// wantProblem is a finding unless an answer is an error, and advises its code.
func (s *session) wantProblem(answer wire.Event, code sdk.Code) error {
	p, err := s.problem(answer)
	if err == nil && p.ErrorName != string(code) {
		s.advise("the error is %s (%s); %s tells callers what to do", p.ErrorName, p.ErrorMessage, code)
	}
	return err
}

func tryError(ctx context.Context, s *session) error {
	answer, err := s.exchange(ctx, s.Fail)
	if err != nil {
		return err
	}
	_, err = s.problem(answer)
	return err
}

func tryUnsendable(ctx context.Context, s *session) error {
	answer, err := s.exchange(ctx, s.Unsendable)
	if err != nil {
		return err
	}
	if _, err := s.problem(answer); err != nil {
		return err
	}
	if answer, err = s.exchange(ctx, s.valid); err == nil {
		err = s.success(answer)
	}
	return about(err, "the next call")
}

func tryNotAnEvent(ctx context.Context, s *session) error {
	for _, body := range []string{`{"specversion":"1.0"`, `[]`, `{}`, "\xff\xfe", ``} {
		c, err := s.call(s.valid)
		if err != nil {
			return err
		}
		if err := s.putBody(ctx, c, []byte(body)); err != nil {
			return err
		}
		if err := s.passedOver(ctx, c); err != nil {
			return about(err, "%q", body)
		}
	}
	return nil
}

func tryOtherID(ctx context.Context, s *session) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	c.event.ID = strings.Replace(c.event.ID, "c1-0-", "c1-1-", 1)
	if err := s.put(ctx, c); err != nil {
		return err
	}
	return s.passedOver(ctx, c)
}

// tryOtherRun only advises: nobody but workers publishes calls.
func tryOtherRun(ctx context.Context, s *session) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	c.event.Subject += "/other"
	if err := s.put(ctx, c); err != nil {
		return err
	}
	if err := s.finish(ctx, c); err != nil {
		return err
	}
	answers, err := s.stored(ctx, c)
	if err == nil && len(answers) > 0 {
		s.advise("it answers a call of another run than its subject names: who may do what is decided by subjects")
	}
	return err
}

// passedOver is a finding unless a message is acknowledged and not answered.
func (s *session) passedOver(ctx context.Context, c *call) error {
	if err := s.finish(ctx, c); err != nil {
		return err
	}
	return s.unanswered(ctx, c)
}

// about says in a finding what it is about.
func about(err error, format string, args ...any) error {
	f, ok := errors.AsType[*finding](err)
	if !ok {
		return err
	}
	said := failed(format, args...)
	return &finding{f.outcome, said.Error() + ": " + f.why}
}

// refused is data that the contract does not accept, made of data that it does; empty if none was found.
func refused(v *contracts.Version, valid json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(valid, &members); err != nil {
		return nil
	}
	candidates := []map[string]json.RawMessage{{}, {"no such member": json.RawMessage("null")}}
	for name := range members {
		for _, other := range []string{`[[]]`, `{"x":{}}`} {
			changed := map[string]json.RawMessage{}
			for n, value := range members {
				changed[n] = value
			}
			changed[name] = json.RawMessage(other)
			candidates = append(candidates, changed)
		}
	}
	var found []json.RawMessage
	for _, c := range candidates {
		data, err := json.Marshal(c)
		if err != nil {
			return nil
		}
		if len(v.Accepts.Validate(data)) > 0 {
			found = append(found, data)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return slices.MinFunc(found, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
}

// void publishes the void of a call and waits until it is acknowledged.
func (s *session) void(ctx context.Context, c *call) error {
	void := outbox.Void(s.conn.Subjects(), c.at, c.event)
	body, err := void.Event.Encode()
	if err != nil {
		return err
	}
	sequence, err := s.conn.Put(ctx, void.Subject, map[string][]string{"Content-Type": {wire.ContentTypeStructured}}, body)
	if err != nil {
		return err
	}
	return about(s.settled(ctx, s.placed(c, sequence), s.Patience), "the void")
}

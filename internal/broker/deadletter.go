package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Headers of dead letters (docs/wire.md, "Dead letters").
const (
	// headerReason, headerDetail and headerSubject say why it was dead-lettered, and where it came from.
	headerReason  = "agentd-reason"
	headerDetail  = "agentd-detail"
	headerSubject = "agentd-subject"
	// headerOmitted says that the body was too large to be copied; it still is where it came from.
	headerOmitted = "agentd-omitted"
	// headerRedrives counts how often the message was published again. It stays on the message, so that it is seen on a
	// dead letter that comes back.
	headerRedrives = "agentd-redrives"
	// headerSettled replaces a dead letter that was dealt with, and says how.
	headerSettled = "agentd-settled"
)

// ours are the headers of a dead letter that are not the message's own.
var ours = map[string]bool{
	headerReason: true, headerDetail: true, headerSubject: true, headerOmitted: true, headerSettled: true,
}

// DeadLetter stores a delivery that cannot be handled, with the reason. Repeating it stores nothing new.
func (c *Conn) DeadLetter(ctx context.Context, d Delivery, reason sdk.Code, detail string) error {
	subject := c.subjects.DeadLetter(reason, d.Stream(), d.Sequence())
	return c.deadLetter(ctx, subject, d.Subject(), d.Headers(), d.Data(), reason, detail)
}

// DeadCall is DeadLetter for a service of a contract in a domain. The error is CodePermissionDenied where its user may not store it.
func (c *Conn) DeadCall(ctx context.Context, d Delivery, domain, contractType string, reason sdk.Code, detail string) error {
	subject := c.subjects.DeadCall(reason, d.Stream(), d.Sequence(), domain, contractType)
	ctx, explain, stop := c.refusals.until(ctx, subject)
	defer stop()
	return explain(c.deadLetter(ctx, subject, d.Subject(), d.Headers(), d.Data(), reason, detail))
}

// Contest stores an event that could not be published because another one is on its subject, as a dead letter with
// CodeConflict: one of the two histories that led to them is not true.
func (c *Conn) Contest(ctx context.Context, subject string, event wire.Event) error {
	data, err := event.Encode()
	if err != nil {
		return fmt.Errorf("encode event %s: %w", event.ID, err)
	}
	there, err := c.Last(ctx, subject)
	if err != nil {
		return err
	}
	letter := c.subjects.DeadLetter(sdk.CodeConflict, there.Stream, there.Sequence)
	detail := fmt.Sprintf("another event is already there, as message %d of %s; this one was not published", there.Sequence, there.Stream)
	return c.deadLetter(ctx, letter, subject, c.headers(subject), data, sdk.CodeConflict, detail)
}

func (c *Conn) deadLetter(
	ctx context.Context, subject, origin string, headers map[string][]string, data []byte, reason sdk.Code, detail string,
) error {
	h := messageHeaders(headers)
	h.Set(headerReason, string(reason))
	h.Set(headerDetail, headerText(detail))
	h.Set(headerSubject, origin)
	m := &nats.Msg{Subject: subject, Data: data, Header: h}
	err := c.create(ctx, m)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeTooLarge}) {
		// With our headers it no longer fits. It must be possible to get rid of it all the same.
		m.Data, m.Header = nil, nats.Header{
			headerReason: h[headerReason], headerDetail: h[headerDetail], headerSubject: h[headerSubject],
			headerOmitted: {"true"},
		}
		err = c.create(ctx, m)
	}
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		return nil // the same delivery was dead-lettered before
	}
	return err
}

// messageHeaders are the headers that are the message's own. Those with a meaning to the server are instructions, not
// data; those of a dead letter are ours to write.
func messageHeaders(headers map[string][]string) nats.Header {
	h := nats.Header{}
	for name, values := range headers {
		if lower := strings.ToLower(name); !strings.HasPrefix(lower, "nats-") && !ours[lower] {
			h[name] = values
		}
	}
	return h
}

// headerText makes text fit for a header: one line of bounded length.
func headerText(text string) string {
	const longest = 2048
	return clip.Text(strings.Join(strings.Fields(text), " "), longest)
}

// Letter is a stored dead letter.
type Letter struct {
	// Sequence is its own, in the stream of dead letters.
	Sequence uint64
	Reason   sdk.Code
	// Detail is the reason in words.
	Detail string
	// At is when it was dead-lettered, in Unix milliseconds.
	At int64
	// Subject, Stream and Origin are where the message came from: its subject, stream and sequence there.
	Subject, Stream string
	Origin          uint64
	// Redrives counts how often the message had been published again before.
	Redrives int
	// Headers and Data are the message as it came. Data is absent when Omitted.
	Headers map[string][]string
	Data    []byte
	Omitted bool
	// Forged says that Subject is not one of Stream: services may write letters on Stream alone, and anything into their headers.
	Forged bool
	// own is the subject that it is stored on.
	own string
}

// letterOf reads a message of the stream of dead letters. ok is false for the mark of one that was dealt with.
func (c *Conn) letterOf(m Stored) (l Letter, ok bool) {
	l = Letter{
		Sequence: m.Sequence, Reason: sdk.Code(m.Header(headerReason)), Detail: m.Header(headerDetail), At: m.At,
		Subject: m.Header(headerSubject), Headers: messageHeaders(m.Headers), Data: m.Data,
		Omitted: m.Header(headerOmitted) != "", own: m.Subject,
	}
	l.Redrives, _ = strconv.Atoi(m.Header(headerRedrives)) // anybody may have written it: what is not a number counts nothing
	tokens := strings.Split(strings.TrimPrefix(m.Subject, c.subjects.Root()+"."), ".")
	if len(tokens) >= 4 {
		l.Stream = strings.ToUpper(tokens[2])
		l.Origin, _ = strconv.ParseUint(tokens[3], 10, 64) // sequences begin at 1
	}
	l.Forged = streams.Name(c.subjects, streams.Layout{}.ZoneOf(l.Subject)) != streams.Whole(l.Stream)
	return l, m.Header(headerSettled) == ""
}

// LetterFilter selects dead letters; the zero value selects all.
type LetterFilter struct {
	Reason sdk.Code
	// After is the sequence that they come after; Since is when they were dead-lettered at the earliest.
	After uint64
	Since time.Time
}

// Letters calls each with the selected dead letters, the oldest first, until each returns false. Those that arrive
// meanwhile are left out.
func (c *Conn) Letters(ctx context.Context, f LetterFilter, each func(Letter) (bool, error)) error {
	filter := c.subjects.All(wire.KindDLQ)
	if f.Reason != "" {
		filter = c.subjects.Root() + "." + string(wire.KindDLQ) + "." + string(f.Reason) + ".>"
	}
	from := f.After + 1
	if !f.Since.IsZero() {
		since, err := c.SequenceAt(ctx, streams.DLQ, f.Since)
		if err != nil {
			return err
		}
		from = max(from, since)
	}
	return c.Scan(ctx, streams.DLQ, filter, from, func(m Stored) (bool, error) {
		if l, ok := c.letterOf(m); ok {
			return each(l)
		}
		return true, nil
	})
}

// Letter returns one dead letter, with the body from where it came if that was omitted and is still there; or
// ErrNotStored.
func (c *Conn) Letter(ctx context.Context, sequence uint64) (Letter, error) {
	m, err := c.At(ctx, streams.DLQ, sequence)
	if err != nil {
		return Letter{}, err
	}
	l, ok := c.letterOf(m)
	if !ok {
		return Letter{}, fmt.Errorf("dead letter %d was dealt with before: %s: %w", sequence, m.Header(headerSettled), ErrNotStored)
	}
	if !l.Omitted {
		return l, nil
	}
	original, err := c.stored(ctx, l.Stream, leader.Query{Sequence: l.Origin})
	switch {
	case errors.Is(err, ErrNotStored):
		return l, nil
	case err != nil:
		return Letter{}, err
	case original.Subject == l.Subject:
		l.Data, l.Headers, l.Omitted = original.Data, messageHeaders(original.Headers), false
	}
	return l, nil
}

// LetterSettled says how the dead letter of a message of a stream was dealt with; empty is that it was not, or that nobody knows any more.
func (c *Conn) LetterSettled(ctx context.Context, stream string, sequence uint64) (how string, err error) {
	m, err := c.Last(ctx, c.subjects.DeadLetter("*", stream, sequence))
	if errors.Is(err, ErrNotStored) {
		return "", nil
	}
	return m.Header(headerSettled), err
}

// DeadLettered returns the reason that a message of a stream was dead-lettered for, also if that was dealt with since; ""
// when it was not.
func (c *Conn) DeadLettered(ctx context.Context, stream string, sequence uint64) (sdk.Code, error) {
	m, err := c.Last(ctx, c.subjects.DeadLetter("*", stream, sequence))
	if errors.Is(err, ErrNotStored) {
		return "", nil
	}
	return sdk.Code(m.Header(headerReason)), err
}

// Republish publishes the dead letter's message again on the subject that it came from, and returns its new sequence
// there. A letter that was dealt with before is *sdk.Error with CodeConflict. On a subject for answers it does so only if nothing but dead
// letters came since, so that it never overtakes an answer: CodeConflict too.
func (c *Conn) Republish(ctx context.Context, l Letter) (stream string, sequence uint64, err error) {
	if err := c.unsettled(ctx, l); err != nil {
		return "", 0, err
	}
	m := &nats.Msg{Subject: l.Subject, Data: l.Data, Header: nats.Header{}}
	maps.Copy(m.Header, l.Headers)
	for name := range m.Header {
		if strings.EqualFold(name, headerRedrives) {
			delete(m.Header, name)
		}
	}
	m.Header.Set(headerRedrives, strconv.Itoa(l.Redrives+1))
	if stream, err = c.streamFor(ctx, l.Subject); err != nil {
		return "", 0, err
	}
	options := []jetstream.PublishOpt{jetstream.WithExpectStream(stream)}
	if strings.HasPrefix(l.Subject, strings.TrimSuffix(c.subjects.All(wire.KindIn), ">")) {
		last, err := c.lastDead(ctx, l)
		if err != nil {
			return "", 0, err
		}
		options = append(options, jetstream.WithExpectLastSequencePerSubject(last))
	}
	ack, err := c.js.PublishMsg(ctx, m, options...)
	if err != nil {
		return "", 0, c.publishError(l.Subject, err)
	}
	return stream, ack.Sequence, nil
}

// lastDead is the sequence of the last message on the letter's subject, 0 if it has none any more. A conflict if that one
// was not dead-lettered.
func (c *Conn) lastDead(ctx context.Context, l Letter) (uint64, error) {
	last, err := c.Last(ctx, l.Subject)
	if errors.Is(err, ErrNotStored) {
		return 0, nil
	}
	if err != nil || last.Sequence == l.Origin {
		return last.Sequence, err
	}
	reason, err := c.DeadLettered(ctx, last.Stream, last.Sequence)
	if err == nil && reason == "" {
		err = sdk.Errorf(sdk.CodeConflict, "message %d of %s came after it on the same subject, and was not dead-lettered",
			last.Sequence, last.Stream)
	}
	return last.Sequence, err
}

// SettleLetter removes a dead letter and leaves a mark in its place that says how it was dealt with. A letter that
// somebody else dealt with meanwhile is *sdk.Error with CodeConflict.
func (c *Conn) SettleLetter(ctx context.Context, l Letter, how string) error {
	name := streams.Name(c.subjects, streams.DLQ)
	mark := &nats.Msg{Subject: l.own, Header: nats.Header{
		headerReason: {string(l.Reason)}, headerSubject: {l.Subject}, headerSettled: {headerText(how)},
	}}
	_, err := c.js.PublishMsg(ctx, mark, jetstream.WithExpectStream(name), jetstream.WithExpectLastSequencePerSubject(l.Sequence))
	if wrongSequence(err) {
		return c.replaced(ctx, l)
	}
	if err != nil {
		return c.publishError(l.own, err)
	}
	return c.deleteLetter(ctx, l.Sequence)
}

// replaced says what there is in a dead letter's place.
func (c *Conn) replaced(ctx context.Context, l Letter) error {
	if err := c.unsettled(ctx, l); err != nil {
		return err
	}
	_, err := c.last(ctx, streams.Name(c.subjects, streams.DLQ), l.own)
	switch {
	case errors.Is(err, ErrNotStored):
		return sdk.Errorf(sdk.CodeConflict, "dead letter %d is not there any more: it is past its age, or somebody deleted it", l.Sequence)
	case err != nil:
		return err
	}
	return sdk.Errorf(sdk.CodeConflict, "the message of dead letter %d was dead-lettered again meanwhile", l.Sequence)
}

// unsettled returns CodeConflict for a letter that was dealt with before, and removes it: whoever dealt with it was interrupted before that.
func (c *Conn) unsettled(ctx context.Context, l Letter) error {
	mark, err := c.last(ctx, streams.Name(c.subjects, streams.DLQ), l.own)
	if err != nil && !errors.Is(err, ErrNotStored) {
		return err
	}
	how := mark.Header(headerSettled)
	if how == "" {
		return nil
	}
	return errors.Join(sdk.Errorf(sdk.CodeConflict, "dead letter %d was dealt with before: %s", l.Sequence, how), c.deleteLetter(ctx, l.Sequence))
}

func (c *Conn) deleteLetter(ctx context.Context, sequence uint64) error {
	s, err := c.js.Stream(ctx, streams.Name(c.subjects, streams.DLQ))
	if err == nil {
		err = s.DeleteMsg(ctx, sequence)
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("delete dead letter %d: %w", sequence, err)
	}
	return nil
}

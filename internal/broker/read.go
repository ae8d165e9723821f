package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Whoever may not read a stream asks workers for its messages. Which ones, the request's subject says, to which the server
// holds the user: a consumer would do the same, but who may make one may have the server publish on any subject.
const (
	// batchMessages and batchBytes bound one answer; one message is always told.
	batchMessages = 256
	batchBytes    = 4 << 20
	// readTimeout bounds one request. A worker whose stream is slow answers after half of it with what it has read.
	readTimeout = 10 * time.Second
)

// Headers of answers, as of the server's own direct reads.
const (
	headerOn       = "Nats-Subject"
	headerStream   = "Nats-Stream"
	headerSequence = "Nats-Sequence"
	headerStored   = "Nats-Time-Stamp"
	headerBefore   = "Nats-Last-Sequence"
	headerPending  = "Nats-Num-Pending"
	// Of the stream, in the last message of an answer: when it was made, in Unix nanoseconds, and the sequence of its last message.
	headerMade = "Agentd-Stream-Created"
	headerLast = "Agentd-Stream-Last"
	// Of a zone that is divided, in place of all else: into how many streams. Whoever wants its messages asks for those of each.
	headerPartitions = "Agentd-Partitions"
)

// readable are the zones that workers read to others: what people are asked, and what became of their answers.
var readable = []streams.Zone{streams.Out, streams.In, streams.DLQ}

// readQuery asks for messages from a sequence on.
type readQuery struct {
	Sequence uint64 `json:"seq"`
}

// page are some messages of a stream, in order; more says that others follow. stream is what the stream was like afterwards, as far as
// that is known.
type page struct {
	messages []Stored
	more     bool
	stream   Bounds
	// partitions is how many streams are to be read in place of this one; 0 is that this is one.
	partitions int
}

// Reader is the service of workers that reads messages to others.
func (c *Conn) Reader() Service {
	return Service{
		Name: c.subjects.Root() + "-reader", Version: "1.0.0", Description: "what people are asked, for desks that may not read streams",
		Endpoints: []Endpoint{{Subject: c.subjects.All(wire.KindRead), Name: "read", Answer: c.answerRead}},
	}
}

func (c *Conn) answerRead(subject string, request []byte) (Answer, error) {
	stream, filter, _ := strings.Cut(strings.TrimPrefix(subject, c.subjects.Root()+"."+string(wire.KindRead)+"."), ".")
	var q readQuery
	if err := json.Unmarshal(request, &q); err != nil || !c.readable(stream, filter) {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, `want {"seq": n}, of a stream of calls, answers or dead letters and a filter on it`)
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout/2)
	defer cancel()
	layout, err := c.Layout(ctx)
	if err != nil {
		return nil, unread(stream, err)
	}
	if layout.Partitions() > 1 && c.isDivided(stream) {
		return page{partitions: layout.Partitions()}.send, nil
	}
	p := page{more: true}
	for size, next := 0, max(q.Sequence, 1); len(p.messages) < batchMessages && size < batchBytes; {
		m, err := c.stored(ctx, stream, leader.Query{Sequence: next, NextOn: filter})
		if errors.Is(err, ErrNotStored) {
			p.more = false
			break
		}
		if errors.Is(err, context.DeadlineExceeded) && len(p.messages) > 0 {
			return p.send, nil
		}
		if err != nil {
			return nil, unread(stream, err)
		}
		p.messages, size, next = append(p.messages, m), size+len(m.Data), m.Sequence+1
	}
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil, unread(stream, err)
	}
	p.stream = bounds(s)
	return p.send, nil
}

// unread says to who asked why a stream was not read.
func unread(stream string, err error) error {
	if !leader.Unanswered(err) {
		return err
	}
	return sdk.Errorf(sdk.CodeUnavailable, "stream %s cannot be read now, because nobody answers who leads it; try again", stream).WithCause(err)
}

// readable reports whether workers read a stream to others, and whether a filter is one.
func (c *Conn) readable(stream, filter string) bool {
	known := slices.ContainsFunc(readable, func(z streams.Zone) bool { return streams.Name(c.subjects, z) == streams.Whole(stream) })
	tokens := strings.Split(filter, ".")
	last := len(tokens) - 1
	return known && tokens[0] == c.subjects.Root() && !slices.Contains(tokens, "") && !slices.Contains(tokens[:last], ">")
}

// send answers with one message for each, and one without a body that says whether there are more.
func (p page) send(r micro.Request) error {
	var before uint64
	for _, m := range p.messages {
		headers := micro.Headers{}
		for name, values := range m.Headers {
			if !strings.HasPrefix(strings.ToLower(name), "nats-") { // what the server was told is not data
				headers[name] = values
			}
		}
		nats.Header(headers).Set(headerOn, m.Subject)
		nats.Header(headers).Set(headerStream, m.Stream)
		nats.Header(headers).Set(headerSequence, strconv.FormatUint(m.Sequence, 10))
		nats.Header(headers).Set(headerStored, time.UnixMilli(m.At).UTC().Format(time.RFC3339Nano))
		nats.Header(headers).Set(headerBefore, strconv.FormatUint(before, 10))
		err := r.Respond(m.Data, micro.WithHeaders(headers))
		if errors.Is(err, nats.ErrMaxPayload) { // with these headers; whoever reads it finds no event
			err = r.Respond(nil, micro.WithHeaders(headers))
		}
		if err != nil {
			return err
		}
		before = m.Sequence
	}
	pending := "0"
	if p.more {
		pending = "1"
	}
	last := micro.Headers{
		headerPending: {pending}, headerMade: {strconv.FormatInt(p.stream.Created, 10)}, headerLast: {strconv.FormatUint(p.stream.Last, 10)},
	}
	if p.partitions > 0 {
		last = micro.Headers{headerPending: {pending}, headerPartitions: {strconv.Itoa(p.partitions)}}
	}
	return r.Respond(nil, micro.WithHeaders(last))
}

// page asks workers for messages. Of an answer that was cut off it returns the beginning, and more.
func (c *Conn) page(ctx context.Context, z streams.Zone, filter string, from uint64) (page, error) {
	subject, began := c.subjects.Read(streams.Name(c.subjects, z), filter), time.Now()
	p, err := c.askForPage(ctx, subject, from)
	if ctx.Err() == nil {
		c.askedWorkers("workers, on "+subject, began, err)
	}
	return p, err
}

func (c *Conn) askForPage(ctx context.Context, subject string, from uint64) (page, error) {
	body, err := json.Marshal(readQuery{from})
	if err != nil {
		return page{}, fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ctx, explain, stop := c.refusals.until(ctx, subject)
	defer stop()
	answers, inbox := make(chan *nats.Msg, batchMessages+2), c.nc.NewInbox()
	subscription, err := c.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return page{}, fmt.Errorf("ask %s: %w", subject, err)
	}
	defer func() { _ = subscription.Unsubscribe() }() // the connection is gone, and the subscription with it
	again := c.nc.StatusChanged(nats.CONNECTED)
	defer c.nc.RemoveStatusListener(again)
	if err := c.nc.PublishRequest(subject, inbox, body); err != nil {
		return page{}, fmt.Errorf("ask %s: %w", subject, err)
	}
	for p := (page{}); ; {
		select {
		case m := <-answers:
			done, err := p.take(m)
			if errors.Is(err, nats.ErrNoResponders) {
				err = c.nobodyAnswers(ctx, subject)
			}
			if done || err != nil {
				return p, err
			}
		case <-again: // an answer may have been lost between two connections
			return p.cutOff(sdk.Errorf(sdk.CodeUnavailable, "the connection to NATS was made anew before the answer on %s; try again", subject))
		case <-c.closed:
			return p, fmt.Errorf("ask %s: %w", subject, nats.ErrConnectionClosed)
		case <-ctx.Done():
			err := explain(ctx.Err())
			if errors.Is(err, context.DeadlineExceeded) {
				return p.cutOff(late(subject, err))
			}
			return p, late(subject, err)
		}
	}
}

// cutOff is what has come of an answer that does not go on: its beginning, if there is one, or the error.
func (p page) cutOff(err error) (page, error) {
	if len(p.messages) == 0 {
		return p, err
	}
	p.more = true
	return p, nil
}

// late says that a request was not answered in time.
func late(subject string, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	return sdk.Errorf(sdk.CodeUnavailable, "nobody has answered on %s in time; look at the workers and the server, and try again", subject).
		WithCause(err)
}

// take takes one message of an answer, and reports whether it was the last one that can be used.
func (p *page) take(m *nats.Msg) (done bool, err error) {
	if m.Header.Get("Status") == "503" {
		return true, nats.ErrNoResponders
	}
	if err := refusal(m); err != nil {
		return true, err
	}
	if m.Header.Get(headerSequence) == "" {
		p.more = m.Header.Get(headerPending) != "0"
		p.stream = boundsIn(m)
		if text := m.Header.Get(headerPartitions); text != "" {
			p.partitions, err = strconv.Atoi(text)
		}
		return true, err
	}
	stored, err := storedIn(m)
	if err != nil {
		return true, err
	}
	var last uint64
	if n := len(p.messages); n > 0 {
		last = p.messages[n-1].Sequence
	}
	if m.Header.Get(headerBefore) != strconv.FormatUint(last, 10) { // one between them is lost
		p.more = true
		return true, nil
	}
	p.messages = append(p.messages, stored)
	return false, nil
}

// boundsIn is what an answer says of its stream: nothing, if its worker is older than these headers.
func boundsIn(m *nats.Msg) Bounds {
	created, err := strconv.ParseInt(m.Header.Get(headerMade), 10, 64)
	last, errLast := strconv.ParseUint(m.Header.Get(headerLast), 10, 64)
	if err != nil || errLast != nil {
		return Bounds{}
	}
	return Bounds{Last: last, Created: created}
}

// storedIn is the message that a direct read, or a worker, answered with.
func storedIn(m *nats.Msg) (Stored, error) {
	sequence, err := strconv.ParseUint(m.Header.Get(headerSequence), 10, 64)
	at, timeErr := time.Parse(time.RFC3339Nano, m.Header.Get(headerStored))
	if err := errors.Join(err, timeErr); err != nil {
		return Stored{}, fmt.Errorf("read a stored message: %w", err)
	}
	headers := map[string][]string{}
	for name, values := range m.Header {
		if !strings.HasPrefix(strings.ToLower(name), "nats-") {
			headers[name] = values
		}
	}
	return Stored{m.Header.Get(headerStream), sequence, m.Header.Get(headerOn), headers, m.Data, at.UnixMilli()}, nil
}

// looked is a stored message that is only looked at: settling it means nothing.
func looked(m Stored) Delivery {
	return delivery{
		msg: &nats.Msg{Subject: m.Subject, Header: m.Headers, Data: m.Data},
		meta: &nats.MsgMetadata{
			Stream: m.Stream, Sequence: nats.SequencePair{Stream: m.Sequence}, NumDelivered: 1, Timestamp: time.UnixMilli(m.At),
		},
	}
}

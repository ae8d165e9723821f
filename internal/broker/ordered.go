package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/retry"
	"agentd/sdk"
)

const (
	// readHeartbeat is how often the server says that it still has nothing for a reader. Who does not hear it twice takes its consumer
	// for lost: the server that has it may end or freeze.
	readHeartbeat = 500 * time.Millisecond
	// readAhead is how many messages a reader asks for at once: they are held in memory, and may be large.
	readAhead = 64
	// unusedFor is how long the server keeps a consumer that nobody reads.
	unusedFor = 5 * time.Minute
)

// remaking is how a lost consumer is made anew.
var remaking = retry.Pauses{First: 50 * time.Millisecond, Longest: time.Second}

// ordered reads a stream in order, by a consumer in a server's memory that is made anew, from where it has got, whenever it is lost. The
// client's own one waits for its consumer for 10 s. Not safe for concurrent use.
type ordered struct {
	*Conn
	stream string
	config jetstream.ConsumerConfig
	// prefix and made, the number of tries, name the consumers; delivered counts the messages of the latest.
	prefix    string
	made      int
	delivered uint64
	// at is the sequence of the last message that was handed out, or passed over.
	at       uint64
	consumer jetstream.Consumer
	messages *iterator
	// unprobed ends the probes of the stream.
	unprobed func()
}

// ordered makes a reader. That this user may not read the stream is said at once. The caller closes it.
func (c *Conn) ordered(ctx context.Context, stream string, config jetstream.OrderedConsumerConfig) (*ordered, error) {
	o := &ordered{Conn: c, stream: stream, prefix: rand.Text(), config: jetstream.ConsumerConfig{
		DeliverPolicy: config.DeliverPolicy, OptStartSeq: config.OptStartSeq, OptStartTime: config.OptStartTime, HeadersOnly: config.HeadersOnly,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: unusedFor, FilterSubjects: config.FilterSubjects,
	}}
	if len(config.FilterSubjects) == 1 { // the server holds the user to it
		o.config.FilterSubject, o.config.FilterSubjects = config.FilterSubjects[0], nil
	}
	bounded, explain, stop := c.refusals.untilAbout(ctx, func(subject string) bool { return strings.Contains(subject, o.prefix) })
	defer stop()
	err := explain(leader.Patiently(bounded, c.js, "stream "+stream, o.make))
	if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		what := strings.Join(append([]string{stream}, config.FilterSubjects...), " ")
		err = sdk.Errorf(sdk.CodePermissionDenied, "the NATS server does not let this user read %s", what).WithCause(sdk.AsError(err).Cause)
	}
	if err != nil {
		return nil, err
	}
	o.unprobed = c.stayInContact(c.probeStream(stream))
	return o, nil
}

// make makes a consumer for what comes after at. Each try has a name of its own: a consumer of which nothing is heard may have been given to
// a server that is away, where it stays.
func (o *ordered) make(ctx context.Context) error {
	o.made++
	o.config.Name = fmt.Sprintf("%s_%d", o.prefix, o.made)
	config := o.config
	if o.at > 0 {
		config.DeliverPolicy, config.OptStartSeq, config.OptStartTime = jetstream.DeliverByStartSequencePolicy, o.at+1, nil
	}
	consumer, err := o.js.CreateOrUpdateConsumer(ctx, o.stream, config)
	if err != nil {
		if leader.Unanswered(err) {
			o.discard()
		}
		return err
	}
	o.consumer, o.delivered = consumer, 0
	o.at = max(o.at, consumer.CachedInfo().Delivered.Stream) // the first one may begin with what is new
	return nil
}

// left is how many messages there were to read when the consumer was made.
func (o *ordered) left() uint64 { return o.consumer.CachedInfo().NumPending }

// next returns the next message. The error is that of ctx, or of a connection that is closed for good.
func (o *ordered) next(ctx context.Context) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	for pauses := remaking.Start(); ; {
		m, meta, err := o.receive(ctx)
		if err == nil && meta.Sequence.Consumer == o.delivered+1 {
			o.delivered, o.at = o.delivered+1, meta.Sequence.Stream
			return m, meta, nil
		}
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case err != nil && o.nc.IsClosed():
			return nil, nil, err
		case errors.Is(err, nats.ErrNoResponders): // who has made it heard of it sooner than the server here
			if err := retry.Sleep(ctx, pauses.Next()); err != nil {
				return nil, nil, err
			}
		case err != nil:
			o.log.Debug("a stream is read by another consumer", "stream", o.stream, "after", o.at, "error", err)
		}
		if err := o.remake(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// receive returns the next message of the latest consumer.
func (o *ordered) receive(ctx context.Context) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	if o.messages == nil {
		messages, err := newIterator(o.consumer)
		if err != nil {
			return nil, nil, err
		}
		o.messages = messages
	}
	m, err := o.messages.next(ctx)
	if err != nil {
		return nil, nil, err
	}
	meta, err := m.Metadata()
	return m, meta, err
}

// remake puts another consumer in the place of a lost one, however long that takes: also a stream that is away may be made anew.
func (o *ordered) remake(ctx context.Context) error {
	o.abandon()
	return remaking.Do(ctx, retry.Sleep, func() error {
		err := leader.Patiently(ctx, o.js, "stream "+o.stream, o.make)
		if o.nc.IsClosed() {
			return retry.Final(err)
		}
		return err
	})
}

// close ends the reading and has the server remove the consumer.
func (o *ordered) close() {
	o.unprobed()
	o.abandon()
}

// abandon reads no more by the latest consumer, and has the server remove it.
func (o *ordered) abandon() {
	if o.messages != nil {
		o.messages.stop()
		o.messages = nil
	}
	o.discard()
}

// discard has the server remove the latest consumer. It waits for no answer: the server does so by itself when nobody has read it for a while, but may
// have too many of them until then.
func (o *ordered) discard() {
	if !o.nc.IsConnected() {
		return
	}
	subject := "$JS.API.CONSUMER.DELETE." + o.stream + "." + o.config.Name
	if err := o.nc.PublishRequest(subject, o.nc.NewInbox(), nil); err != nil {
		o.log.Debug("consumer is left to the server", "stream", o.stream, "error", err)
	}
}

// iterator is what one consumer brings. Unlike the client's own iterator it says when a request for messages has reached nobody, as one to a
// consumer that was just made may: without that, whoever reads waits for two heartbeats. stop ends it.
type iterator struct {
	context  jetstream.ConsumeContext
	messages chan jetstream.Msg
	// lost has what was wrong first.
	lost  chan error
	ended chan struct{}
}

func newIterator(consumer jetstream.Consumer) (*iterator, error) {
	i := &iterator{messages: make(chan jetstream.Msg), lost: make(chan error, 1), ended: make(chan struct{})}
	bring := func(m jetstream.Msg) {
		select {
		case i.messages <- m:
		case <-i.ended:
		}
	}
	failed := func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrServerShutdown) {
			return // it would not answer who asks for another consumer; when it is gone there are no heartbeats
		}
		select {
		case i.lost <- err:
		default:
		}
	}
	var err error
	i.context, err = consumer.Consume(bring, jetstream.PullHeartbeat(readHeartbeat), jetstream.PullMaxMessages(readAhead), jetstream.ConsumeErrHandler(failed))
	return i, err
}

func (i *iterator) next(ctx context.Context) (jetstream.Msg, error) {
	select {
	case m := <-i.messages:
		return m, nil
	case err := <-i.lost:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (i *iterator) stop() {
	close(i.ended)
	i.context.Stop()
}

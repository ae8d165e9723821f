package broker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
	"agentd/sdk/wire"
)

// stopped is what is left of a consumer's reading.
type stopped struct{ jetstream.ConsumeContext }

func (stopped) Stop() {}

// skipped is a message of a consumer that has lost others.
type skipped struct{ jetstream.Msg }

func (skipped) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Consumer: 7}}, nil
}

// A reader that has lost messages, and cannot ask for them any more, returns an error and no message.
func TestOrdered_SaysThatTheConnectionIsClosed(t *testing.T) {
	t.Parallel()
	c, err := Connect(testContext(t), ConnectOptions{
		InProcess: startServer(t, embedded.Options{}), Subjects: wire.DefaultSubjects(), Logger: testLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	messages := make(chan jetstream.Msg, 1)
	messages <- skipped{}
	o := &ordered{Conn: c, stream: "AGENTD_START", messages: &iterator{context: stopped{}, messages: messages, ended: make(chan struct{})}}
	if m, _, err := o.next(testContext(t)); err == nil {
		t.Errorf("it returned %v, and no error", m)
	}
}

// A server may hear of a consumer that another one has just made after who made it, and says then that nobody takes requests for its
// messages. The reader asks again, and waits for no heartbeat before.
func TestOrdered_AsksAgainWhenItsRequestReachedNobody(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	mustPublish(t, c.Publish(testContext(t), c.subjects.Call(testCall), event("c")))
	o, err := c.ordered(testContext(t), "AGENTD_OUT", jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	if err := c.js.DeleteConsumer(testContext(t), "AGENTD_OUT", o.consumer.CachedInfo().Name); err != nil {
		t.Fatal(err)
	}
	messages, err := newIterator(o.consumer)
	if err != nil {
		t.Fatal(err)
	}
	defer messages.stop()
	if _, err := messages.next(testContext(t)); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("of a request that reached nobody it says %v", err)
	}
	if m, _, err := o.next(testContext(t)); err != nil || m.Subject() != c.subjects.Call(testCall) {
		t.Errorf("it reads %v, %v", m, err)
	}
}

// deaf is a JetStream that answers nobody who wants a consumer.
type deaf struct {
	jetstream.JetStream
	names []string
}

func (d *deaf) CreateOrUpdateConsumer(_ context.Context, _ string, config jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	d.names = append(d.names, config.Name)
	return nil, nats.ErrTimeout
}

// A consumer of which nothing is heard may be on a server that is away: the next try has another name, and what may be there is removed.
func TestOrdered_TriesAreConsumersOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	js := &deaf{JetStream: c.js}
	c.js = js
	removed, err := c.nc.SubscribeSync("$JS.API.CONSUMER.DELETE.AGENTD_OUT.*")
	if err != nil {
		t.Fatal(err)
	}
	o := &ordered{Conn: c, stream: "AGENTD_OUT", prefix: "reader"}
	for _, want := range []string{"reader_1", "reader_2"} {
		if err := o.make(testContext(t)); !errors.Is(err, nats.ErrTimeout) {
			t.Fatalf("it is made: %v", err)
		}
		if m, err := removed.NextMsgWithContext(testContext(t)); err != nil || !strings.HasSuffix(m.Subject, "."+want) {
			t.Errorf("what is removed is %+v, %v; want %s", m, err, want)
		}
	}
	if diff := cmp.Diff([]string{"reader_1", "reader_2"}, js.names); diff != "" {
		t.Errorf("it asked for (-want +got):\n%s", diff)
	}
}

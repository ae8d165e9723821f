package broker

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
	"agentd/sdk/wire"
)

// skipping are messages of a consumer that has lost some.
type skipping struct{ jetstream.MessagesContext }

func (skipping) Next(...jetstream.NextOpt) (jetstream.Msg, error) { return skipped{}, nil }
func (skipping) Stop()                                            {}

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
	o := &ordered{Conn: c, stream: "AGENTD_START", messages: skipping{}}
	if m, _, err := o.next(testContext(t)); err == nil {
		t.Errorf("it returned %v, and no error", m)
	}
}

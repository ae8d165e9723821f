package rebuild

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/test/natsserver"
)

// late is a cluster one of whose servers is heard of only when somebody has asked it in vain.
type late struct {
	jetstream.JetStream
	arrive func()
}

func (l *late) Unanswered(string, time.Time, error) { l.arrive() }
func (l *late) Answered()                           {}

// A server of a cluster may be heard of, as the one that takes the pieces of a stream, later than its answer that it takes them comes.
func TestRestore_WaitsForWhoTakesThePieces(t *testing.T) {
	t.Parallel()
	s := natsserver.Member(t, "three", server.RANDOM_PORT)
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	subscribe := func(subject string, handle nats.MsgHandler) {
		if _, err := nc.Subscribe(subject, handle); err != nil {
			t.Error(err)
		}
	}
	var got bytes.Buffer
	whole := make(chan struct{})
	arrive := func() {
		subscribe("pieces", func(m *nats.Msg) {
			if len(m.Data) == 0 {
				close(whole)
			}
			got.Write(m.Data)
			_ = m.Respond(nil)
		})
	}
	subscribe("$JS.API.STREAM.RESTORE.S", func(m *nats.Msg) { _ = m.Respond([]byte(`{"deliver_subject": "pieces"}`)) })
	dir := t.TempDir()
	want := bytes.Repeat([]byte("a stream"), chunkSize/4)
	if err := os.WriteFile(filepath.Join(dir, dataFile), want, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := restore(t.Context(), &late{js, arrive}, jetstream.StreamConfig{Name: "S"}, dir); err != nil {
		t.Fatal(err)
	}
	<-whole
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes came, want %d", got.Len(), len(want))
	}
}

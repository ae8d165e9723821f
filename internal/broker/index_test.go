package broker

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
)

// Documents of the index are not worth waiting for the disk of the one server that has them. With replicas the server lets no stream do without.
func TestIndex_WaitsForNoDiskWhereOneServerHasIt(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	provision(t, c, Plan{Index: true, PersistMode: PersistDefault})
	seen := 0
	lister := c.js.ListStreams(testContext(t))
	for info := range lister.Info() {
		want := jetstream.DefaultPersistMode
		if info.Config.Name == "AGENTD_IDX" {
			want = jetstream.AsyncPersistMode
			seen++
		}
		if got := info.Config.PersistMode; got != want {
			t.Errorf("stream %s is stored %s; want %s", info.Config.Name, got, want)
		}
	}
	if err := lister.Err(); err != nil || seen != 1 {
		t.Fatalf("%v; the index was seen %d times", err, seen)
	}
	if changes := provision(t, c, Plan{Index: true}); changes != nil {
		t.Errorf("the second time: %v", changes)
	}
	for _, stream := range c.streams(Plan{Index: true, Replicas: 3}) {
		if stream.PersistMode != jetstream.DefaultPersistMode {
			t.Errorf("with three replicas, stream %s is stored %s", stream.Name, stream.PersistMode)
		}
	}
}

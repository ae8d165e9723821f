package provision

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/streams"
)

// Documents of the index are not worth waiting for the disk of the one server that has them. With replicas the server lets no stream do without.
func TestIndex_WaitsForNoDiskWhereOneServerHasIt(t *testing.T) {
	t.Parallel()
	c := alone(t)
	apply(t, c, Plan{Index: true, PersistMode: streams.PersistDefault})
	seen := 0
	lister := c.JetStream().ListStreams(brokertest.Context(t))
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
	if changes := apply(t, c, Plan{Index: true}); changes != nil {
		t.Errorf("the second time: %v", changes)
	}
	for _, stream := range (Plan{Index: true, Replicas: 3}).Streams(c.Subjects()) {
		if stream.PersistMode != jetstream.DefaultPersistMode {
			t.Errorf("with three replicas, stream %s is stored %s", stream.Name, stream.PersistMode)
		}
	}
}

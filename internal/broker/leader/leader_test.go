package leader

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A client of a leaf node reaches the streams of the hub's domain.
func TestAPI_IsThatOfTheDomain(t *testing.T) {
	t.Parallel()
	for want, options := range map[string]jetstream.JetStreamOptions{
		"$JS.API.X": {}, "$JS.hub.API.X": {Domain: "hub"}, "from.a.X": {APIPrefix: "from.a."},
	} {
		if got := API(options, "X"); got != want {
			t.Errorf("API subject %s, want %s", got, want)
		}
	}
}

package leader

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/test/natsserver"
	"agentd/test/ports"
)

// connect connects until the test ends.
func connect(t *testing.T, urls string, options ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(urls, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// A connection that changes servers does not say whether they are a cluster. What it asks then is asked again all the same, while a leader is
// being elected.
func TestPatientlyOnce_WhileTheConnectionChangesServers(t *testing.T) {
	t.Parallel()
	port := ports.Free(t)
	s := natsserver.Member(t, "three", port)
	nc, js := connect(t, s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	away, back := nc.StatusChanged(nats.RECONNECTING), nc.StatusChanged(nats.CONNECTED)
	s.Shutdown()
	<-away
	asked := 0
	err := PatientlyOnce(t.Context(), js, "stream AGENTD_START", func(context.Context) error {
		if asked++; asked > 1 {
			return nil
		}
		natsserver.Member(t, "three", port)
		<-back
		return jetstream.ErrNoStreamResponse
	})
	if err != nil {
		t.Errorf("after %d requests: %v", asked, err)
	}
}

// A request that is lost while the connection is between servers is made again, before it is connected to any of them.
func TestPatiently_BetweenServers(t *testing.T) {
	t.Parallel()
	for urls, want := range map[string]int{"": 1, ",nats://127.0.0.1:1": 2} {
		s := natsserver.Member(t, "", server.RANDOM_PORT)
		nc, js := connect(t, s.ClientURL()+urls, nats.MaxReconnects(-1), nats.DontRandomize())
		away := nc.StatusChanged(nats.RECONNECTING)
		s.Shutdown()
		<-away
		asked := 0
		err := Patiently(t.Context(), js, "stream AGENTD_START", func(context.Context) error {
			if asked++; asked > 1 {
				return nil
			}
			return nats.ErrDisconnected
		})
		if asked != want || (err == nil) != (want > 1) {
			t.Errorf("with the URLs %q: after %d requests, %v", s.ClientURL()+urls, asked, err)
		}
	}
}

// A request that was lost is soon made again; one that needs long is given longer each time.
func TestPatiently_GivesEachRequestLonger(t *testing.T) {
	t.Parallel()
	s := natsserver.Member(t, "three", server.RANDOM_PORT)
	_, js := connect(t, s.ClientURL())
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second}
	var given []time.Duration
	err := Patiently(t.Context(), js, "stream AGENTD_START", func(ctx context.Context) error {
		if len(given) == len(want) {
			return nil
		}
		deadline, _ := ctx.Deadline()
		given = append(given, time.Until(deadline).Round(time.Second))
		return context.DeadlineExceeded
	})
	if err != nil || !slices.Equal(given, want) {
		t.Errorf("requests are given %v, want %v: %v", given, want, err)
	}
}

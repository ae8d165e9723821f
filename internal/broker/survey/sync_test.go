package survey

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/test/natsserver"
	"agentd/test/ports"
)

func TestCheckSync(t *testing.T) {
	t.Parallel()
	embedded := brokertest.Server(t, embedded.Options{Listen: true, Port: ports.Free(t)})
	check := func(name string, c *broker.Conn, monitor string, want ...string) {
		findings, err := CheckSync(brokertest.Context(t), c, monitor, nil)
		var got []string
		for _, f := range findings {
			got = append(got, f.Code)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
	check("in process", brokertest.Connect(t, broker.ConnectOptions{InProcess: embedded}), "")
	check("embedded in another", brokertest.Connect(t, broker.ConnectOptions{URL: embedded.URL()}), "")
	lazy, lazyMonitor := foreignServer(t, false)
	check("foreign", lazy, "", "sync_unknown")
	check("lazy", lazy, lazyMonitor, "sync_interval")
	always, alwaysMonitor := foreignServer(t, true)
	check("always", always, alwaysMonitor)
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	check("a wrong port", lazy, gone.URL, "monitor")
	check("one of two", lazy, lazyMonitor+","+gone.URL, "sync_interval", "monitor")
	check("a list with spaces", lazy, alwaysMonitor+", "+lazyMonitor+" ", "sync_interval")
}

// foreignServer is a NATS server that agentd did not start.
func foreignServer(t *testing.T, syncAlways bool) (c *broker.Conn, monitor string) {
	t.Helper()
	ns := natsserver.Start(t, server.Options{
		Port: server.RANDOM_PORT, HTTPHost: "127.0.0.1", HTTPPort: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), SyncAlways: syncAlways,
	})
	return brokertest.Connect(t, broker.ConnectOptions{URL: ns.ClientURL()}), "http://" + ns.MonitorAddr().String()
}

// Package natsserver starts NATS servers in the test's process as others run them, for tests of what agentd does with servers that are not
// its own.
package natsserver

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const host = "127.0.0.1"

// Start starts a server on host, without a log, that is closed with the test.
func Start(t testing.TB, o server.Options) *server.Server {
	t.Helper()
	o.Host, o.NoLog, o.NoSigs = host, true, true
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server takes no connections")
	}
	return s
}

// Member starts a server without JetStream that says which cluster it is of, on a port, server.RANDOM_PORT for any. The others of the
// cluster are not there. Without the name of a cluster it is alone.
func Member(t testing.TB, cluster string, port int) *server.Server {
	t.Helper()
	o := server.Options{Port: port}
	if cluster != "" {
		o.ServerName, o.Cluster = "one", server.ClusterOpts{Name: cluster, Host: host, Port: server.RANDOM_PORT}
	}
	return Start(t, o)
}

// Package member starts NATS servers without JetStream that say which cluster they are of, for tests of what a client does where
// servers are a cluster. The others of it are not there.
package member

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Start starts a server on a port of 127.0.0.1, server.RANDOM_PORT for any, that is closed with the test. Without the name of a cluster it
// is alone.
func Start(t testing.TB, cluster string, port int) *server.Server {
	t.Helper()
	const host = "127.0.0.1"
	o := &server.Options{Host: host, Port: port, NoLog: true, NoSigs: true}
	if cluster != "" {
		o.ServerName, o.Cluster = "one", server.ClusterOpts{Name: cluster, Host: host, Port: server.RANDOM_PORT}
	}
	s, err := server.NewServer(o)
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

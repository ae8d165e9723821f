package broker

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"agentd/internal/broker/embedded"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/ports"
)

func TestConnect_SaysThatNoServerIsThere(t *testing.T) {
	t.Parallel()
	_, err := Connect(testContext(t), ConnectOptions{
		URL: fmt.Sprintf("nats://me:secret@127.0.0.1:%d", ports.Free(t)), Subjects: wire.DefaultSubjects(),
	})
	if !isCode(err, sdk.CodeUnavailable) {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error tells the password: %v", err)
	}
}

func TestConnect_WaitsForTheFirstServer(t *testing.T) {
	t.Parallel()
	port := ports.Free(t)
	connected := make(chan error, 1)
	ctx := testContext(t)
	go func() {
		c, err := Connect(ctx, ConnectOptions{
			URL: fmt.Sprintf("nats://127.0.0.1:%d", port), Wait: true, Subjects: wire.DefaultSubjects(),
		})
		if err == nil {
			err = c.Close()
		}
		connected <- err
	}()
	startServer(t, embedded.Options{Listen: true, Port: port, PortOnly: true})
	if err := receive(t, "a connection", connected); err != nil {
		t.Error(err)
	}
}

func TestConnect_RefusesAServerWithoutTimers(t *testing.T) {
	t.Parallel()
	_, err := Connect(testContext(t), ConnectOptions{URL: oldServer(t), Subjects: wire.DefaultSubjects()})
	if !isCode(err, sdk.CodeConfig) || !strings.Contains(err.Error(), "2.12") {
		t.Errorf("got %v; want an error that names the version needed", err)
	}
}

// oldServer says that it is NATS 2.11 and answers pings.
func oldServer(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprint(conn, `INFO {"server_id":"X","version":"2.11.9","proto":1,"headers":true,"max_payload":1048576}`+"\r\n")
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			if lines.Text() == "PING" {
				_, _ = fmt.Fprint(conn, "PONG\r\n")
			}
		}
	}()
	return "nats://" + l.Addr().String()
}

func TestConn_ComesBackAfterARestartOfTheServer(t *testing.T) {
	t.Parallel()
	o := embedded.Options{Dir: shortDir(t), Listen: true, Port: ports.Free(t), PortOnly: true}
	s := startServer(t, o)
	c := connect(t, ConnectOptions{URL: s.URL()})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is noticed", func() bool { return !c.Connected() })
	startServer(t, o)
	eventually(t, "it is connected again", c.Connected)
}

func TestConn_ClosesWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedded.Options{Listen: true, Port: ports.Free(t)})
	c := connect(t, ConnectOptions{URL: s.URL()})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is noticed", func() bool { return !c.Connected() })
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

package embedded

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/internal/broker/datafolder"
	"agentd/sdk"
	"agentd/test/ports"
)

func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	c, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func isCode(err error, code sdk.Code) bool { return errors.Is(err, &sdk.Error{Code: code}) }

func TestServer_RefusesASecondOnItsFolder(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{})
	second, err := Start(Options{Dir: s.Dir()})
	if !isCode(err, sdk.CodeConfig) {
		t.Fatalf("got server %v and error %v; want %s", second, err, sdk.CodeConfig)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	third := startServer(t, Options{Dir: s.Dir(), Listen: true})
	if _, err := connect(t, third.URL()).Request("$JS.API.INFO", nil, startTimeout); err != nil {
		t.Error(err)
	}
}

func TestServer_TellsItsAddressWhileItListens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := datafolder.ReadAddress(dir); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("before the start: %v", err)
	}
	s := startServer(t, Options{Dir: dir, Listen: true})
	address, err := datafolder.ReadAddress(dir)
	if err != nil || address != s.URL() {
		t.Fatalf("got %q, %v; want %q", address, err, s.URL())
	}
	c := connect(t, address)
	if host, _, err := net.SplitHostPort(c.ConnectedAddr()); err != nil || host != "127.0.0.1" {
		t.Errorf("it listens on %s (%v); want loopback only", c.ConnectedAddr(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := datafolder.ReadAddress(dir); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("after the end: %v", err)
	}
}

func TestReadAddress_IgnoresWhatAKilledServerLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, datafolder.AddressFile), []byte("nats://127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if address, err := datafolder.ReadAddress(dir); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("got %q, %v", address, err)
	}
	startServer(t, Options{Dir: dir})
	if address, err := datafolder.ReadAddress(dir); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("with a server that does not listen: %q, %v", address, err)
	}
}

func TestServer_TakesAFreePortUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	s := startServer(t, Options{Listen: true, Port: port})
	if s.ns.Addr().(*net.TCPAddr).Port == port {
		t.Error("it listens on a port that is taken")
	}
	if _, err := Start(Options{Dir: t.TempDir(), Listen: true, Port: port, PortOnly: true}); !isCode(err, sdk.CodeConfig) {
		t.Errorf("with PortOnly: %v; want %s", err, sdk.CodeConfig)
	}
}

func TestServer_ListensWhereItDidBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listen := func(o Options) int {
		t.Helper()
		o.Dir, o.Listen = dir, true
		s := startServer(t, o)
		port := s.ns.Addr().(*net.TCPAddr).Port
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	before := listen(Options{Port: ports.Free(t)})
	if got := listen(Options{}); got != before {
		t.Errorf("it listens on %d; want %d as before", got, before)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(before)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := listen(Options{}); got == before {
		t.Error("it listens on a port that is taken")
	}
	if said := ports.Free(t); listen(Options{Port: said}) != said {
		t.Error("it listens where it did before, and not on the port that was asked for")
	}
}

func TestServer_HasNoPortUnlessAsked(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{})
	if s.ns.Addr() != nil {
		t.Errorf("it listens on %s", s.ns.Addr())
	}
	if c := connect(t, "", nats.InProcessServer(s)); !c.IsConnected() {
		t.Error("not connected in process")
	}
}

func TestServer_SyncsEveryWrite(t *testing.T) {
	t.Parallel()
	if s := startServer(t, Options{}); !s.ns.JetStreamConfig().SyncAlways {
		t.Error("the server confirms writes before they are on disk")
	}
}

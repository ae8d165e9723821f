package broker

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"agentd/sdk"
)

func isCode(err error, code sdk.Code) bool { return errors.Is(err, &sdk.Error{Code: code}) }

func TestServer_RefusesASecondOnItsFolder(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	second, err := StartServer(ServerOptions{Dir: s.Dir()})
	if !isCode(err, sdk.CodeConfig) {
		t.Fatalf("got server %v and error %v; want %s", second, err, sdk.CodeConfig)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	third := startServer(t, ServerOptions{Dir: s.Dir()})
	if err := third.Healthy(); err != nil {
		t.Error(err)
	}
}

func TestServer_TellsItsAddressWhileItListens(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	if _, err := ReadAddress(dir); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("before the start: %v", err)
	}
	s := startServer(t, ServerOptions{Dir: dir, Listen: true})
	address, err := ReadAddress(dir)
	if err != nil || address != s.URL() {
		t.Fatalf("got %q, %v; want %q", address, err, s.URL())
	}
	c := connect(t, ConnectOptions{URL: address})
	if host, _, err := net.SplitHostPort(c.nc.ConnectedAddr()); err != nil || host != "127.0.0.1" {
		t.Errorf("it listens on %s (%v); want loopback only", c.nc.ConnectedAddr(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAddress(dir); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("after the end: %v", err)
	}
}

func TestReadAddress_IgnoresWhatAKilledServerLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, addressFile), []byte("nats://127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if address, err := ReadAddress(dir); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("got %q, %v", address, err)
	}
	startServer(t, ServerOptions{Dir: dir})
	if address, err := ReadAddress(dir); !isCode(err, sdk.CodeUnavailable) {
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
	s := startServer(t, ServerOptions{Listen: true, Port: port})
	if s.ns.Addr().(*net.TCPAddr).Port == port {
		t.Error("it listens on a port that is taken")
	}
	if _, err := StartServer(ServerOptions{Dir: shortDir(t), Listen: true, Port: port, PortOnly: true}); !isCode(err, sdk.CodeConfig) {
		t.Errorf("with PortOnly: %v; want %s", err, sdk.CodeConfig)
	}
}

func TestServer_HasNoPortUnlessAsked(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	if s.ns.Addr() != nil {
		t.Errorf("it listens on %s", s.ns.Addr())
	}
	if c := connect(t, ConnectOptions{Server: s}); !c.Connected() {
		t.Error("not connected in process")
	}
}

func TestServer_SyncsEveryWrite(t *testing.T) {
	t.Parallel()
	if s := startServer(t, ServerOptions{}); !s.ns.JetStreamConfig().SyncAlways {
		t.Error("the server confirms writes before they are on disk")
	}
}

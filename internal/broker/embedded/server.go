// Package embedded is a NATS server inside this process.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"

	"agentd/internal/broker/datafolder"
	"agentd/sdk"
)

// DefaultPort is where an embedded server listens if the port is free, and its folder keeps no other.
const DefaultPort = 4222

// Options describe an embedded NATS server.
type Options struct {
	// Dir holds its data. One server at a time may use it.
	Dir string
	// Listen opens a port on 127.0.0.1; otherwise only this process reaches the server.
	Listen bool
	// Port is the preferred port; 0 is the one that the last server on Dir had, else DefaultPort. A free one is taken when it is in use,
	// unless PortOnly is set.
	Port     int
	PortOnly bool
	// MaxPayload is the largest message in bytes; 0 is 1 MiB.
	MaxPayload int32
	Logger     *slog.Logger
}

// Server is a NATS server inside this process, with JetStream on disk, synced at every write.
type Server struct {
	ns   *server.Server
	lock *flock.Flock
	dir  string
	// address is the file that names the client URL; empty when the server does not listen.
	address string
}

// Start starts an embedded server. It locks Dir: NATS itself lets two servers open one folder and destroy it.
func Start(o Options) (*Server, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	s := &Server{dir: o.Dir, lock: flock.New(filepath.Join(o.Dir, datafolder.LockFile))}
	// ReadAddress holds the lock for an instant.
	patience, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
	defer cancel()
	locked, err := s.lock.TryLockContext(patience, 10*time.Millisecond)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("lock data folder %s: %w", o.Dir, err)
	}
	if !locked {
		return nil, sdk.Errorf(sdk.CodeConfig, "another agentd runs on the data folder %s; stop it, or choose another with --data", o.Dir)
	}
	if err := s.start(o); err != nil {
		return nil, errors.Join(err, s.lock.Unlock())
	}
	return s, nil
}

func (s *Server) start(o Options) error {
	// Whoever was killed on this folder left its address behind.
	address := filepath.Join(s.dir, datafolder.AddressFile)
	if err := os.Remove(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the old address: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := s.bootOn(o); err != nil || !o.Listen {
		return err
	}
	err := datafolder.WriteFile(address, s.URL()+"\n")
	if err == nil {
		err = datafolder.KeepPort(s.dir, datafolder.PortFile, s.ns.Addr())
	}
	if err != nil {
		s.stop()
		return fmt.Errorf("write the server's address: %w", err)
	}
	s.address = address
	return nil
}

// bootOn is boot on the first of the ports that is free.
func (s *Server) bootOn(o Options) (err error) {
	for _, o.Port = range o.ports(datafolder.Port(s.dir, datafolder.PortFile)) {
		if err = s.boot(o); err == nil || !o.Listen || !taken(o.Port, err) {
			return err
		}
	}
	return sdk.Errorf(sdk.CodeConfig, "port %d is in use; stop what listens there, or choose another", o.Port).WithCause(err)
}

// ports are those to try in turn; kept is the one that the folder keeps.
func (o *Options) ports(kept int) []int {
	switch {
	case o.PortOnly:
		return []int{o.Port}
	case o.Port != 0:
		return []int{o.Port, server.RANDOM_PORT}
	case kept != 0:
		return []int{kept, DefaultPort, server.RANDOM_PORT}
	default:
		return []int{DefaultPort, server.RANDOM_PORT}
	}
}

// boot starts the server and waits until it can be used.
func (s *Server) boot(o Options) error {
	ns, err := server.NewServer(&server.Options{
		ServerName: datafolder.ServerName, Host: "127.0.0.1", Port: o.Port, DontListen: !o.Listen,
		JetStream: true, StoreDir: s.dir, SyncAlways: true, NoSigs: true,
		DisableJetStreamBanner: true, MaxPayload: o.MaxPayload, JetStreamMaxMemory: 64 << 20,
	})
	if err != nil {
		return fmt.Errorf("embedded NATS server: %w", err)
	}
	log := serverLog{o.Logger, make(chan string, 1)}
	ns.SetLoggerV2(log, false, false, false)
	s.ns = ns
	ns.Start()
	for late := time.Now().Add(startTimeout); time.Now().Before(late); {
		select {
		case reason := <-log.fatal:
			s.stop()
			return fmt.Errorf("embedded NATS server on %s: %s", s.dir, reason)
		default:
		}
		if ns.ReadyForConnections(100 * time.Millisecond) {
			return nil
		}
	}
	s.stop()
	return fmt.Errorf("embedded NATS server on %s is not ready after %s", s.dir, startTimeout)
}

func (s *Server) stop() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

// taken reports whether a server could not start because another program had its port: it may have left it since.
func taken(port int, err error) bool {
	return port != server.RANDOM_PORT && (strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) || !portFree(port))
}

func portFree(port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// startTimeout is how long a server may take to listen once it has recovered its streams, which takes as long as it takes.
const startTimeout = time.Minute

// URL is the address for clients.
func (s *Server) URL() string { return s.ns.ClientURL() }

// Dir is the data folder.
func (s *Server) Dir() string { return s.dir }

// Close stops the server and releases its folder. It may be repeated.
func (s *Server) Close() error {
	var err error
	if s.address != "" {
		err = os.Remove(s.address)
		s.address = ""
	}
	s.stop()
	return errors.Join(err, s.lock.Unlock())
}

// InProcessConn is a connection that needs no port.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.InProcessConn() }

// serverLog passes the server's log on. Its notices are details here.
type serverLog struct {
	l *slog.Logger
	// fatal has the first reason why the server cannot run; a server process would exit with it.
	fatal chan string
}

func (s serverLog) Noticef(format string, v ...any) { s.log(slog.LevelDebug, format, v) }
func (s serverLog) Debugf(format string, v ...any)  { s.log(slog.LevelDebug, format, v) }
func (s serverLog) Tracef(format string, v ...any)  { s.log(slog.LevelDebug, format, v) }
func (s serverLog) Warnf(format string, v ...any)   { s.log(slog.LevelWarn, format, v) }
func (s serverLog) Errorf(format string, v ...any)  { s.log(slog.LevelError, format, v) }

func (s serverLog) Fatalf(format string, v ...any) {
	select {
	case s.fatal <- fmt.Sprintf(format, v...):
	default:
	}
	s.log(slog.LevelDebug, format, v) // whoever starts the server reports it, or tries another port
}

func (s serverLog) log(level slog.Level, format string, v []any) {
	s.l.Log(context.Background(), level, "nats server", "message", fmt.Sprintf(format, v...))
}

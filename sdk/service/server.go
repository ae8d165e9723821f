package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/datafolder"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// InProcess is a NATS server in this process.
type InProcess interface{ InProcessConn() (net.Conn, error) }

// Server runs services over one connection. Its zero value takes everything from the environment.
type Server struct {
	// URL is a comma-separated list of NATS servers. Empty is NATS_URL, else the server of an `agentd dev` that runs on
	// the data folder (AGENTD_DATA, else .agentd), else nats://127.0.0.1:4222.
	URL string
	// Creds is the path of a credentials file. Empty is NATS_CREDS, or NATS_NKEY, NATS_CA, NATS_CERT and NATS_KEY.
	Creds string
	// Root is the first token of every subject; empty is AGENTD_ROOT, else "agentd".
	Root string
	// InProcess is a server in this process, such as an sdktest.Harness, in place of URL.
	InProcess InProcess
	// Grace is how long running handlers may go on when the program stops; 0 is 30 s. Calls that take longer are delivered
	// to another program.
	Grace time.Duration
	// Logger is slog.Default() when nil.
	Logger *slog.Logger
	// Observer is told of every call; nil is nobody. One that makes spans and metrics is telemetry.Start of sdk/telemetry.
	Observer Observer

	// For tests: conn is used instead of a connection of its own; for the others see serving. 0 is streams.CallHeartbeat.
	conn                *broker.Conn
	heartbeat, patience time.Duration
	// withDeadline is context.WithDeadline when nil.
	withDeadline func(context.Context, time.Time) (context.Context, context.CancelFunc)
}

const (
	defaultURL   = "nats://127.0.0.1:4222"
	defaultData  = ".agentd"
	defaultGrace = 30 * time.Second
)

// Run serves until ctx ends, with everything from the environment. See Server.Run.
func Run(ctx context.Context, services ...*Service) error { return Server{}.Run(ctx, services...) }

// Run serves until ctx ends, then fetches nothing more and returns when the running handlers have finished. It waits for
// a NATS server, or a consumer, that is not there. Consumers are made by agentd; see `agentd provision`.
//
// The error is *sdk.Error with CodeConfig if the services cannot be served as they are, and with CodeConflict if the
// registry has a version of a contract with other content.
func (o Server) Run(ctx context.Context, services ...*Service) error {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	bound, err := o.bind(services)
	if err != nil {
		return err
	}
	conn := o.conn
	if conn == nil {
		if conn, err = o.connect(ctx, services); err != nil {
			return err
		}
	}
	err = serveAll(ctx, conn, bound)
	if conn == o.conn {
		return err
	}
	return errors.Join(err, conn.Close())
}

// serveAll registers the services, shows them to others and serves until ctx ends, or until the registry turns out to have
// other content for one of them.
func serveAll(ctx context.Context, conn *broker.Conn, services []*serving) error {
	for _, s := range services {
		s.conn = conn
	}
	registering, err := register(ctx, services)
	if err != nil {
		return err
	}
	withdraw, err := offer(conn, services)
	if err != nil {
		return err
	}
	return errors.Join(serveUntil(ctx, services, registering), withdraw())
}

// serveUntil serves until ctx ends or registering fails, which happens in the background.
func serveUntil(ctx context.Context, services []*serving, registering func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	var conflict error
	running.Go(func() {
		if conflict = registering(ctx); conflict != nil {
			stop()
		}
	})
	for _, s := range services {
		running.Go(func() { s.run(ctx) })
	}
	running.Wait()
	return conflict
}

// bind checks that the services can be served together.
func (o Server) bind(services []*Service) ([]*serving, error) {
	if o.withDeadline == nil {
		o.withDeadline = context.WithDeadline
	}
	var bound []*serving
	var faults []sdk.Fault
	taken := map[streams.ConsumerRef]bool{}
	for i, s := range services {
		if s == nil || len(s.versions) == 0 {
			faults = append(faults, sdk.Fault{Path: fmt.Sprintf("services[%d]", i), Expected: "a service that New has made", Got: "none"})
			continue
		}
		handlers, found := s.bind()
		faults = append(faults, found...)
		for _, domain := range s.domains {
			ref := streams.ServiceConsumer(domain, s.contract.Type)
			if taken[ref] {
				faults = append(faults, sdk.Fault{Path: s.contract.Type, Expected: "one service of " + ref.Name, Got: "two"})
			}
			taken[ref] = true
		}
		bound = append(bound, &serving{
			Service: s, handlers: handlers, log: o.Logger.With("service", s.contract.Type), grace: o.Grace,
			active: newActiveCalls(), hands: newHands(), observer: o.Observer, heartbeat: cmp.Or(o.heartbeat, streams.CallHeartbeat), patience: cmp.Or(o.patience, streams.CallHeartbeat),
			withDeadline: o.withDeadline,
		})
	}
	if len(services) == 0 {
		faults = append(faults, sdk.Fault{Path: "services", Expected: "at least one", Got: "none"})
	}
	if len(faults) > 0 {
		return nil, &sdk.Error{Code: sdk.CodeConfig, Message: "the services cannot be run", Faults: faults}
	}
	return bound, nil
}

func (o Server) connect(ctx context.Context, services []*Service) (*broker.Conn, error) {
	subjects, err := wire.NewSubjects(cmp.Or(o.Root, os.Getenv("AGENTD_ROOT"), wire.DefaultRoot))
	if err != nil {
		return nil, err
	}
	url, source, err := o.address()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range services {
		names = append(names, s.contract.Type)
	}
	o.Logger.Info("connecting to NATS", "address_from", source)
	login := broker.LoginFromEnvironment()
	login.Creds = cmp.Or(o.Creds, login.Creds)
	conn, err := broker.Connect(ctx, broker.ConnectOptions{
		URL: url, InProcess: o.InProcess, Login: login, Name: "service " + strings.Join(names, " "),
		Subjects: subjects, Logger: o.Logger, Wait: true,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to NATS (address from %s): %w", source, err)
	}
	o.Logger.Info("serving", "types", names)
	return conn, nil
}

// address is where NATS is, and how that is known.
func (o Server) address() (url, source string, err error) {
	if o.URL != "" || o.InProcess != nil {
		return o.URL, "the program", nil
	}
	if url := os.Getenv("NATS_URL"); url != "" {
		return url, "NATS_URL", nil
	}
	data := cmp.Or(os.Getenv("AGENTD_DATA"), defaultData)
	url, err = datafolder.ReadAddress(data)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		return defaultURL, "the default", nil
	}
	return url, "agentd dev on " + data, err
}

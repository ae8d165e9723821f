package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/runner"
	"agentd/internal/worker"
	"agentd/sdk/wire"
	"agentd/test/cluster"
	"agentd/test/ports"
	"agentd/test/proxy"
)

// The stores of runs.
const (
	storeJetStream = "jetstream"
	storeRedis     = "redis"
)

// options of one chaos.
type options struct {
	store string
	// faults is how long faults happen, rest how long the system may then take to come to rest.
	faults, rest time.Duration
	seed         uint64
	workers      int
	// running is how many runs clients keep going.
	running int
	// layout is how streams are divided.
	layout streams.Layout
	// clustered has three NATS servers in place of one.
	clustered bool
	// setsBack has the server confirm calls, terminal events and timers before they are written, and come back to older files of these.
	setsBack bool
	// dir takes data, logs and notes.
	dir string
	out io.Writer
}

var subjects = wire.DefaultSubjects()

// world is one chaos: the driver's connections, the processes, and what became of everything.
type world struct {
	options
	began time.Time
	conn  *broker.Conn
	store runner.Store
	// nats is the NATS server, unless there is a cluster; redis is nil where JetStream is the store.
	nats, redis *server
	cluster     *cluster.Cluster
	hurts       hurts
	model       *modelServer
	clients     *clients
	webhooks    *webhooks
	seen        seen
	record      *record
	closers     []func() error
}

// open starts the servers and everything of the driver's own.
func open(ctx context.Context, o options) (_ *world, err error) {
	w := &world{options: o, began: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.record, err = newRecord(filepath.Join(o.dir, "notes.jsonl")); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, w.record.close)
	url, err := w.openBroker(ctx)
	if err != nil {
		return nil, err
	}
	// The driver's own connections bypass the proxies: clients and services are not what is tested.
	w.conn, err = broker.Connect(ctx, broker.ConnectOptions{
		URL: url, Name: "driver", Subjects: subjects, Logger: slog.New(slog.DiscardHandler), Wait: true, Waits: w.hurts.waited,
	})
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, w.conn.Close)
	if err = w.serveWebhooks(ctx); err != nil {
		return nil, err
	}
	plan := worker.Plan(specs())
	plan.Webhooks = w.webhooks.plan()
	plan.AckWait, plan.PersistMode, plan.Partitions = ackWait, streams.PersistDefault, w.layout.Partitions()
	if w.setsBack {
		plan.PersistMode = streams.PersistAsync
	}
	if w.clustered {
		plan.Replicas = len(w.cluster.Nodes)
	}
	if _, err = provision.Apply(ctx, w.conn, plan); err != nil {
		return nil, err
	}
	if err = w.openStore(ctx); err != nil {
		return nil, err
	}
	w.clients = newClients(w)
	w.model, err = serveModel(ctx, o.seed)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, w.model.close)
	if err = w.openDesk(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// openStore opens the store of runs, with its server where that is Redis.
func (w *world) openStore(ctx context.Context) (err error) {
	o := worker.StoreOptions{}
	if w.options.store == storeRedis {
		if w.redis, err = w.startServer(ctx, "redis", w.redisCommand); err != nil {
			return err
		}
		o.RedisURL = "redis://" + w.redis.target
	}
	if o.Keys, err = keyring(mostKeys); err != nil {
		return err
	}
	opened, err := worker.OpenOwnStore(ctx, w.conn, o)
	if err != nil {
		return err
	}
	w.store = opened
	w.closers = append(w.closers, opened.Close)
	return nil
}

// openBroker starts the NATS server, or the servers of a cluster, and returns where the driver reaches them.
func (w *world) openBroker(ctx context.Context) (url string, err error) {
	if w.clustered {
		return w.openCluster(ctx)
	}
	if w.nats, err = w.startServer(ctx, "nats", w.natsCommand); err != nil {
		return "", err
	}
	return "nats://" + w.nats.target, nil
}

func (w *world) close() error {
	var errs []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	return errors.Join(errs...)
}

// rng returns a source of choices of its own for each purpose.
func (w *world) rng(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, purpose)) }

func (w *world) printf(format string, args ...any) { fmt.Fprintf(w.out, format, args...) }

// logFile is a file of the evidence for the output of a process.
func (w *world) logFile(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(w.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// play starts this program again as a child.
func (w *world) play(name string, r role, log *os.File, onNote func(note)) (*child, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	return startChild(name, cmd, log, onNote)
}

// server is a NATS or Redis server in a process, with the proxy that workers reach it by.
type server struct {
	name, target string
	proxy        *proxy.Proxy
	begin        func() (*child, error)
	mu           sync.Mutex
	now          *child
}

func (w *world) startServer(ctx context.Context, name string, command func(port int, log *os.File) (*child, error)) (*server, error) {
	port, err := ports.Find(ctx)
	if err != nil {
		return nil, err
	}
	log, err := w.logFile(name)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, log.Close)
	s := &server{name: name, target: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	s.begin = func() (*child, error) { return command(port, log) }
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, func() error {
		s.process().kill()
		return nil
	})
	if s.proxy, err = proxy.New(ctx, s.target); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, func() error {
		s.proxy.Close()
		return nil
	})
	return s, nil
}

func (s *server) process() *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// serverStart is how long a server may take to load its data.
const serverStart = time.Minute

// start returns when the server listens.
func (s *server) start(ctx context.Context) error {
	c, err := s.begin()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.now = c
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, serverStart)
	defer cancel()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", s.target)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-c.ended:
			return fmt.Errorf("%s ended while it started; see its log", s.name)
		case <-ctx.Done():
			c.kill()
			return fmt.Errorf("%s does not listen: %w", s.name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *world) natsCommand(port int, log *os.File) (*child, error) {
	return w.play("nats", role{Dir: filepath.Join(w.dir, "nats"), Port: port}, log, func(note) {})
}

func (w *world) redisCommand(port int, log *os.File) (*child, error) {
	dir := filepath.Join(w.dir, "redis")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction")
	c, err := startChild("redis", cmd, log, nil)
	if err != nil {
		return nil, fmt.Errorf("%w (apt-get install redis-server)", err)
	}
	return c, nil
}

// forget deletes the journal of a run, as a store does that lost it.
func (w *world) forget(ctx context.Context, run wire.RunKey) error {
	if w.redis == nil {
		stream := streams.Name(subjects, w.layout.OfRun(streams.Run, run))
		var answer struct {
			Error any `json:"error"`
		}
		err := w.ask(ctx, "STREAM.PURGE."+stream, map[string]string{"filter": subjects.Journal(run)}, &answer)
		if err == nil && answer.Error != nil {
			err = fmt.Errorf("purge the journal of run %s: %v", run, answer.Error)
		}
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", w.redis.target)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(askTimeout))
	}
	if err != nil {
		return err
	}
	keys := subjects.Root() + ":{p" + run.Partition + "}:"
	_, err = fmt.Fprintf(conn, "DEL %sh:%s %sl:%s\r\nQUIT\r\n", keys, run.Token, keys, run.Token)
	var answer []byte
	if err == nil {
		answer, err = io.ReadAll(conn)
	}
	if err == nil && !strings.HasPrefix(string(answer), ":") { // how many keys there were: none, if it is done again
		err = fmt.Errorf("delete the journal of run %s: %q", run, answer)
	}
	return errors.Join(err, conn.Close())
}

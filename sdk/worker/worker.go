package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"agentd/internal/answers"
	"agentd/internal/approval"
	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/catalog"
	"agentd/internal/contracts"
	"agentd/internal/finding"
	"agentd/internal/llm"
	"agentd/internal/retry"
	"agentd/internal/runner"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/sealed"
	"agentd/internal/telemetry"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Login is how a worker shows NATS who it is, and how it knows the server: all are paths of files. Creds has credentials, NKey the
// seed of an nkey. CA has the authorities that the server's certificate must be of, in place of the system's; Cert and Key are
// the worker's own certificate.
type Login struct{ Creds, NKey, CA, Cert, Key string }

// RedisTLS are paths of PEM files, for a Redis URL with TLS (rediss://). RedisCA has the authorities that the server's certificate
// must be of, in place of the system's; RedisCert and RedisKey are the worker's own certificate.
type RedisTLS struct{ RedisCA, RedisCert, RedisKey string }

// Options say what is served and where. Only Agents is required.
type Options struct {
	// URL is a comma-separated list of NATS servers; empty is nats://127.0.0.1:4222.
	URL string
	Login
	// RedisURL is the store of runs. Empty keeps them in JetStream. All workers of an agent must use the same store.
	RedisURL string
	RedisTLS
	// RedisReplicas is how many replicas of Redis must have what is written of a run before the worker goes on from it, so that a failover to
	// one of them loses nothing; 0 waits for none. All that write to the store must wait for as many: docs/operations.md. With RedisURL alone.
	RedisReplicas int
	// RedisReplicaTimeout is how long they have for it before it is written again, until they have it; 0 is a second, and a millisecond is the
	// least.
	RedisReplicaTimeout time.Duration
	// Root is the first token of every subject; empty is wire.DefaultRoot.
	Root string
	// Encryption seals what is stored of runs; the zero value stores it as it is. All workers of an agent must be able to
	// open what the others seal.
	Encryption Encryption

	Agents []sdk.Agent
	// Models resolves the model of an agent's spec. Nil are the providers "openai" and "anthropic", with keys and addresses
	// from OPENAI_API_KEY, OPENAI_BASE_URL, ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL.
	Models func(sdk.ModelSpec) (sdk.Provider, error)
	// Slots is how many messages are handled at once; 0 is sdk.DefaultSlots.
	Slots int

	// PlainEntries has entries of journals stored as they are, not packed, and each change by itself, as workers of versions need them that
	// cannot read others: docs/operations.md.
	PlainEntries bool

	// Provision makes the streams and consumers that the agents need. Without it they must be there: see
	// `agentd provision`.
	Provision bool
	// Replicas of each stream, for Provision; 0 leaves existing streams as they are, and is 1 for new ones.
	Replicas int
	// Partitions is how many streams journals, timers, calls and answers are each divided into: a power of two up to 256, for ever. 0 is as many as there are,
	// and 1 where Provision makes the first. A worker does not start on streams that are divided otherwise.
	Partitions int
	// AnswersAge is how long the broker keeps answers, and messages to runs, for Provision; 0 is 7 days. It is never shorter than the agents
	// need: as long as their calls may wait.
	AnswersAge time.Duration
	// PersistMode is how Provision has one server keep calls, terminal events and timers: "default" has it confirm what it has written, "async"
	// before, and the journals bring back what it loses. Empty leaves streams that are there as they are, and makes others async.
	PersistMode string

	// Identity refuses runs and decisions without a principal that the broker enforced as the last token of their subject.
	Identity bool
	// Keys verify signed decisions, by domain.
	Keys map[string][]sdk.DecisionKey

	// EarlyDecisions is how long a decision is kept whose request has not come, before it becomes a dead letter; 0 is not at all.
	EarlyDecisions time.Duration

	// ReconcileEvery is how often one of the workers looks for runs that were lost, and repairs or ends them: docs/reliability.md.
	// 0 is an hour, negative is never. LostAfter is how old something must be before it counts as lost; 0 is 15 minutes.
	// ReconcileFullEvery is how often they look at all runs, and not at those alone that have changed; 0 is a day, negative is each time.
	ReconcileEvery, ReconcileFullEvery, LostAfter time.Duration
	// History is how long a finished run keeps its history; 0 is 30 days, negative is for ever.
	History time.Duration
	// CallsKept is how long the broker keeps the calls of a finished run, at least 2 minutes; 0 is 10 minutes, negative is for as long as the
	// stream of calls keeps any.
	CallsKept time.Duration
	// Hot is how long the journal of a finished run stays in Redis before it leaves for an archive in JetStream, at least 3 hours; 0 is for as
	// long as its history is kept (docs/operations.md). With RedisURL alone.
	Hot time.Duration

	// Grace is how long a stopping worker lets activations reach their next step; 0 is 30 s.
	Grace time.Duration
	// HTTP is an address such as ":8080" for GET /livez, /readyz and /metrics (Prometheus); empty is none. The worker is
	// ready while it reaches NATS, its consumers and the store, and not from the moment it is asked to stop.
	HTTP string
	// Serving is called once, when the worker answers who asks of its runs, and begins to take messages; nil is allowed.
	Serving func()
	// Replaced gives options that are to take the place of these while Run serves, and of one another, until it is closed; nil is never.
	// What they say is served beside what was before until it takes messages: runs go on there from their next step, as in another process,
	// and no message waits for it. Their toolsets are their own. HTTP, telemetry and Replaced itself stay as Run began with them.
	Replaced <-chan Options
	// Kept is called in place of Serving for options out of Replaced that are not served, with why, unless Run ends: ErrReplaced, or what is
	// wrong with them; what was before goes on. It must not wait for the end of Run. Nil is allowed.
	Kept func(error)
	// Logger is slog.Default() when nil.
	Logger *slog.Logger
}

// Encryption is with what keys the store of runs is sealed: docs/encryption.md.
type Encryption struct {
	// Current is the id of the key that everything new is sealed with.
	Current string
	// Keys are 32 random bytes each, by id. An id must never be given to another key.
	Keys map[string][]byte
	// AllowPlaintext also reads what was stored before encryption was turned on.
	AllowPlaintext bool
}

const (
	defaultURL = "nats://127.0.0.1:4222"
)

// FromEnvironment returns options from NATS_URL, NATS_CREDS, NATS_NKEY, NATS_CA, NATS_CERT, NATS_KEY, REDIS_URL,
// REDIS_CA, REDIS_CERT, REDIS_KEY, AGENTD_REDIS_REPLICAS and AGENTD_ROOT. Run refuses a number of replicas that is none.
func FromEnvironment() Options {
	return Options{
		URL: os.Getenv("NATS_URL"), Login: Login(broker.LoginFromEnvironment()), RedisURL: os.Getenv("REDIS_URL"),
		RedisTLS:      RedisTLS{os.Getenv("REDIS_CA"), os.Getenv("REDIS_CERT"), os.Getenv("REDIS_KEY")},
		RedisReplicas: replicas(os.Getenv("AGENTD_REDIS_REPLICAS")), Root: os.Getenv("AGENTD_ROOT"),
	}
}

// replicas reads a number of replicas; what is none becomes one that is refused.
func replicas(text string) int {
	n, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil {
		return -1
	}
	return n
}

// Run serves until ctx ends. Then it takes no further message, lets activations reach their next step, and leaves what is
// not finished to other workers: it cancels no run.
//
// Traces and metrics go where the OTEL_* variables say; without any there are none.
//
// NATS or Redis may be away, at the start or later: the worker waits and reconnects for ever. The error is *sdk.Error
// with CodeConfig when waiting would not help: the agents are wrong, or what they need on the broker is missing.
func Run(ctx context.Context, o Options) error {
	s, err := newServing(o)
	if err != nil {
		return err
	}
	s.telemetry, err = telemetry.Start(ctx, telemetry.Options{Scrape: o.HTTP != "", Logger: s.Logger})
	if err != nil {
		return err
	}
	stop, err := s.health.listen(ctx, o.HTTP, s.telemetry.Handler())
	if err != nil {
		return errors.Join(err, s.telemetry.Close())
	}
	defer context.AfterFunc(ctx, s.health.end)()
	return errors.Join(s.inTurn(ctx), s.telemetry.Close(), stop())
}

// serving is a worker of one Run.
type serving struct {
	Options
	subjects wire.Subjects
	keys     *sealed.Keyring
	health   *health
	// ready is there when it serves.
	ready func(context.Context) error
	// telemetry is nil when it is off.
	telemetry *telemetry.Telemetry
}

// newServing fills in defaults and checks everything that can be checked without a connection.
func newServing(o Options) (*serving, error) {
	o.URL = cmp.Or(o.URL, defaultURL)
	o.Slots = cmp.Or(o.Slots, sdk.DefaultSlots)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	subjects, err := wire.NewSubjects(cmp.Or(o.Root, wire.DefaultRoot))
	if err != nil {
		return nil, err
	}
	if len(o.Agents) == 0 {
		return nil, sdk.Errorf(sdk.CodeConfig, "no agent to serve: name at least one")
	}
	if o.RedisReplicas < 0 || o.RedisReplicaTimeout < 0 {
		return nil, sdk.Errorf(sdk.CodeConfig, "RedisReplicas (AGENTD_REDIS_REPLICAS) and RedisReplicaTimeout: expected 0 or more")
	}
	if o.Models == nil {
		if o.Models, err = modelsFromEnvironment(); err != nil {
			return nil, err
		}
	}
	keys, err := sealed.NewKeyring(sealed.Options(o.Encryption))
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, a := range o.Agents {
		err := checkCode(a)
		if err == nil {
			err = catalog.Check(a, approval.Options{Grants: approval.NoGrants{}, Identity: o.Identity, Keys: o.Keys})
		}
		if err == nil {
			_, err = o.Models(a.Spec.Model)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("agent %s: %w", a.Spec.Name, err))
		}
	}
	return &serving{Options: o, subjects: subjects, keys: keys, health: &health{}}, errors.Join(faults...)
}

// checkCode refuses tools that there is nothing to run of.
func checkCode(a sdk.Agent) error {
	var faults []sdk.Fault
	for i, tool := range a.Tools {
		if tool.Run == nil {
			faults = append(faults, sdk.Fault{Path: fmt.Sprintf("$.Tools[%d].Run", i), Expected: "a function", Got: "nil"})
		}
	}
	for i, set := range a.Toolsets {
		if set == nil {
			faults = append(faults, sdk.Fault{Path: fmt.Sprintf("$.Toolsets[%d]", i), Expected: "a toolset", Got: "nil"})
		}
	}
	if len(faults) > 0 {
		return &sdk.Error{Code: sdk.CodeConfig, Message: "tools of it cannot be run", Faults: faults}
	}
	return nil
}

func modelsFromEnvironment() (func(sdk.ModelSpec) (sdk.Provider, error), error) {
	registry, err := llm.New(llm.Config{Providers: []llm.ProviderConfig{
		{Name: "openai", APIKey: os.Getenv("OPENAI_API_KEY"), BaseURL: os.Getenv("OPENAI_BASE_URL")},
		{
			Name: "anthropic", Protocol: llm.ProtocolAnthropic, APIKey: os.Getenv("ANTHROPIC_API_KEY"),
			BaseURL: os.Getenv("ANTHROPIC_BASE_URL"),
		},
	}})
	if err != nil {
		return nil, err
	}
	return registry.Provider, nil
}

func (s *serving) run(ctx context.Context) (err error) {
	conn, err := broker.Connect(ctx, broker.ConnectOptions{
		URL: s.URL, Login: broker.Login(s.Login), Name: "agentd worker", Subjects: s.subjects, Logger: s.Logger, Wait: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := s.persist(ctx, "set up the broker", func() error { return s.setUp(ctx, conn) }); err != nil {
		return err
	}
	var store worker.OpenedStore
	err = s.persist(ctx, "open the store", func() (err error) {
		store, err = worker.OpenOwnStore(ctx, conn, worker.StoreOptions{
			RedisURL: s.RedisURL, RedisTLS: redisstore.TLS{CA: s.RedisCA, Cert: s.RedisCert, Key: s.RedisKey}, Keys: s.keys, Logger: s.Logger,
			RedisReplicas: s.RedisReplicas, RedisReplicaTimeout: s.RedisReplicaTimeout, PlainEntries: s.PlainEntries,
		})
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for _, w := range store.Warnings {
		s.Logger.Warn("the store does not keep agentd's promises", "finding", w.Text(), "remedy", w.Remedy)
	}
	return s.serve(ctx, conn, store)
}

// gate is that of the process: a run that may end it is driven beside no other, whichever worker has it.
var gate runner.Isolation

func (s *serving) serve(ctx context.Context, conn *broker.Conn, store worker.OpenedStore) error {
	w, err := worker.New(worker.Options{
		Conn: conn, Store: store, Models: s.Models, Agents: s.Agents, Slots: s.Slots, Grace: s.Grace, Logger: s.Logger,
		Reconcile: s.reconcile(), Identity: s.Identity, Keys: s.Keys, Telemetry: s.telemetry, Gate: &gate,
		EarlyDecisions: s.EarlyDecisions, PlainEntries: s.PlainEntries, Serving: s.Serving,
	})
	if err != nil {
		return err
	}
	s.ready = w.Ready
	return w.Run(ctx)
}

// reconcile fills in defaults.
func (s *serving) reconcile() worker.Reconcile {
	return worker.Reconcile{
		Interval: max(cmp.Or(s.ReconcileEvery, sdk.DefaultReconcile), 0), OlderThan: s.LostAfter,
		FullInterval: max(cmp.Or(s.ReconcileFullEvery, sdk.DefaultReconcileFull), 0),
		History:      max(cmp.Or(s.History, sdk.DefaultHistory), 0), Calls: max(cmp.Or(s.CallsKept, sdk.DefaultCallsKept), 0),
		Hot: max(s.Hot, 0),
	}
}

// setUp provisions the broker, or checks that it is provisioned, and looks up what the agents have from the registry.
func (s *serving) setUp(ctx context.Context, conn *broker.Conn) error {
	// Before the registry is asked, it must be there.
	if err := s.prepare(ctx, conn); err != nil {
		return err
	}
	resolved, err := worker.Resolve(ctx, conn, s.Agents)
	if err != nil {
		return err
	}
	s.Agents = resolved
	if !slices.ContainsFunc(resolved, func(a sdk.Agent) bool { return contracts.UsesRegistry(a.Spec) }) {
		return nil
	}
	return s.prepare(ctx, conn)
}

// prepare provisions the broker, or checks that it is provisioned.
func (s *serving) prepare(ctx context.Context, conn *broker.Conn) error {
	if s.Provision {
		return s.provision(ctx, conn)
	}
	findings, err := provision.Verify(ctx, conn, s.plan())
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Code == finding.CodeNotPermitted {
			return sdk.Errorf(sdk.CodePermissionDenied, "%s; connect as the workers' user (docs/security.md)", f.Message)
		}
		if f.Severity != finding.SeverityError {
			s.Logger.Warn("the broker is not as it should be", "finding", f.Text(), "remedy", f.Remedy)
		}
	}
	return provision.Problem(findings)
}

func (s *serving) plan() provision.Plan {
	specs := make([]sdk.AgentSpec, len(s.Agents))
	for i, a := range s.Agents {
		specs[i] = a.Spec
	}
	plan := worker.Plan(specs)
	plan.Replicas, plan.Partitions, plan.PersistMode = s.Replicas, s.Partitions, streams.PersistMode(s.PersistMode)
	plan.Cold = s.RedisURL != "" && s.Hot > 0
	reconciled := max(cmp.Or(s.ReconcileEvery, sdk.DefaultReconcile), 0)
	plan.Unreconciled = reconciled == 0
	need := answers.Needed(specs).WithEarly(s.EarlyDecisions).WithReconcile(reconciled, cmp.Or(s.LostAfter, sdk.DefaultLostAfter))
	plan.AnswersAge, plan.AnswersNeeded = s.AnswersAge, need.For
	return plan
}

func (s *serving) provision(ctx context.Context, conn *broker.Conn) error {
	changes, err := provision.Apply(ctx, conn, s.plan())
	for _, c := range changes {
		s.Logger.Info("provisioned", "kind", c.Kind, "name", c.Name, "action", c.Action)
	}
	return err
}

// starting is how something that a worker needs is tried again.
var starting = retry.Pauses{First: 250 * time.Millisecond, Longest: 5 * time.Second}

// persist repeats attempt until it succeeds, is refused for good, or ctx ends.
func (s *serving) persist(ctx context.Context, doing string, attempt func() error) error {
	return starting.Do(ctx, retry.Sleep, func() error {
		err := attempt()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return retry.Final(ctx.Err())
		case errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}), errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}):
			return retry.Final(err)
		case broker.Refused(err):
			return retry.Final(fmt.Errorf("%s: %w", doing, err))
		}
		s.Logger.Warn("worker cannot start yet; trying again", "doing", doing, "error", err)
		return err
	})
}

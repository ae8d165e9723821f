// Package doctor looks for what keeps agentd from keeping its promises: the server, its streams, the store, models, workers.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/broker/survey"
	"agentd/internal/config"
	"agentd/internal/days"
	"agentd/internal/finding"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// Examination is what was looked at and found.
type Examination struct {
	Examined []string          `json:"examined"`
	Findings []finding.Finding `json:"findings"`

	cfg  *config.Config
	conn *broker.Conn
}

func (e *Examination) examined(format string, args ...any) {
	e.Examined = append(e.Examined, fmt.Sprintf(format, args...))
}

func (e *Examination) found(findings ...finding.Finding) {
	e.Findings = append(e.Findings, findings...)
}

// Examine examines what a configuration needs. It connects by connect, and closes that connection.
func Examine(
	ctx context.Context, cfg *config.Config, monitor string, connect func(context.Context) (*broker.Conn, error),
) (*Examination, error) {
	e := &Examination{Findings: []finding.Finding{}, cfg: cfg}
	e.models()
	e.folder()
	conn, err := connect(ctx)
	if err != nil {
		e.unreachable(err)
		return e, nil
	}
	e.conn = conn
	e.examined("NATS server %s", conn.ServerVersion())
	if urls := string(e.cfg.NATS.URL); strings.Contains(urls, ",") {
		for _, url := range broker.Away(ctx, urls) {
			e.found(finding.Error("server_unreachable", "nobody listens at "+url+", which is in the list of servers",
				"start the server there, or correct NATS_URL"))
		}
	}
	return e, errors.Join(e.broker(ctx, monitor), conn.Close())
}

func (e *Examination) models() {
	registry, err := setup.Models(e.cfg)
	if err == nil && len(e.cfg.Agents) > 0 {
		err = setup.CheckModels(e.cfg, registry)
		e.examined("models of %s", show.Count(len(e.cfg.Agents), "agent"))
	}
	if err == nil {
		return
	}
	// Workers may have keys that this command does not see: it says whose environment lacks them.
	f := finding.Warning("model", err.Error(), "correct models: in the configuration")
	if problem := sdk.AsError(err); problem.Cause != nil {
		f.Message = "in the environment of this command: " + problem.Cause.Error()
		f.Remedy = "workers have environments of their own; if it is the same there, " + problem.Message
	}
	e.found(f)
}

func (e *Examination) folder() {
	if e.cfg.NATS.URL != "" {
		return // nothing embedded is used
	}
	e.examined("data folder %s", e.cfg.Data)
	e.found(survey.CheckFolder(e.cfg.Data)...)
}

// unreachable says why the connection failed.
func (e *Examination) unreachable(err error) {
	problem := sdk.AsError(err)
	if problem.Code == sdk.CodeConfig {
		e.found(finding.Error("server_version", problem.Message, "upgrade the NATS server"))
		return
	}
	e.found(finding.Error("nats_unreachable", show.Problem(problem), "start the server (agentd dev), or correct NATS_URL and NATS_CREDS"))
}

func (e *Examination) broker(ctx context.Context, monitor string) error {
	p := setup.Plan(e.cfg)
	if len(p.Agents) == 0 {
		p.LongestRun = time.Nanosecond // no deadline to compare the streams with
	}
	servers, err := e.servers(ctx, p)
	if err != nil || len(servers.Leaderless) > 0 {
		return err // without leaders nothing else can be seen
	}
	if err := e.registry(ctx); err != nil {
		return err
	}
	findings, err := provision.Verify(ctx, e.conn, p)
	if err != nil {
		return err
	}
	e.examined("streams, and consumers of %s and %s", show.Count(len(p.Agents), "agent"), show.Count(len(p.Services), "service"))
	e.found(findings...)
	e.answers(ctx, p)
	if findings, err = survey.CheckAccounts(ctx, e.conn, monitor); err != nil {
		return err
	}
	e.found(findings...)
	if findings, err = survey.CheckSync(ctx, e.conn, monitor, slices.Sorted(maps.Keys(servers.Leads))); err != nil {
		return err
	}
	e.found(findings...)
	e.writable(ctx)
	e.store(ctx)
	for _, spec := range e.cfg.Agents {
		e.worker(ctx, spec.Name)
		e.paused(ctx, spec.Name)
		e.clocks(ctx, spec)
	}
	e.examined("readers of the calls of %s", show.Count(len(p.Services), "service"))
	e.services(ctx, p.Services)
	return nil
}

// answers tells what keeping answers costs: they leave by their age alone. That they leave too early is found with the streams.
func (e *Examination) answers(ctx context.Context, p provision.Plan) {
	zones, err := e.conn.Zones(ctx, streams.In)
	if err != nil {
		return // it may not look, or the streams are not there: both were found before
	}
	for _, z := range zones {
		e.answersOn(ctx, p, z)
	}
}

func (e *Examination) answersOn(ctx context.Context, p provision.Plan, z streams.Zone) {
	var kept broker.ZoneState
	err := e.conn.Permitted(ctx, func(ctx context.Context) (err error) {
		kept, err = e.conn.ZoneState(ctx, z)
		return err
	})
	if err != nil {
		return
	}
	name := streams.Name(e.conn.Subjects(), z)
	text := fmt.Sprintf("%s: %s on %s, %s", name, show.Count(int(kept.Messages), "message"), show.Count(int(kept.Subjects), "subject"),
		show.Size(float64(kept.Bytes)))
	switch planned := p.AnswersKept(); {
	case kept.MaxAge == 0:
		text += ", kept for ever"
	case kept.MaxAge > planned:
		text += fmt.Sprintf(", kept for %s where %s would do; agentd shortens nothing, it is for: nats stream edit %s --max-age %s",
			days.Text(kept.MaxAge), days.Text(planned), name, planned)
	default:
		text += ", kept for " + days.Text(kept.MaxAge)
	}
	e.examined("%s", text)
}

// servers looks at the servers of a cluster.
func (e *Examination) servers(ctx context.Context, p provision.Plan) (survey.Servers, error) {
	seen, findings, err := survey.CheckServers(ctx, e.conn, p)
	if err != nil {
		return seen, err
	}
	e.found(findings...)
	if seen.Cluster != "" {
		var each []string
		for _, name := range slices.Sorted(maps.Keys(seen.Leads)) {
			each = append(each, fmt.Sprintf("%s leads %s", name, show.Count(seen.Leads[name], "stream")))
		}
		e.examined("cluster %s: %s", seen.Cluster, strings.Join(each, ", "))
	}
	return seen, nil
}

// written is how long after it has confirmed a write a server that writes later has tried to. It confirms none any more when it could not.
const written = 500 * time.Millisecond

// writable looks whether the server takes writes: it may be full.
func (e *Examination) writable(ctx context.Context) {
	err := e.conn.Permitted(ctx, e.conn.Writable)
	if err == nil && e.writesLater(ctx) {
		select {
		case <-time.After(written):
			err = e.conn.Permitted(ctx, e.conn.Writable)
		case <-ctx.Done():
		}
	}
	if err == nil || notPermitted(err) { // that it may not look at the broker was found before
		return
	}
	e.found(finding.Error("not_writable", show.Problem(err), "see docs/operations.md, \"Full stores\""))
}

// writesLater reports whether the server confirms what Writable writes before it has written it.
func (e *Examination) writesLater(ctx context.Context) bool {
	parts, err := e.conn.Zones(ctx, streams.Timer)
	if err != nil || len(parts) == 0 {
		return false
	}
	state, err := e.conn.ZoneState(ctx, parts[0])
	return err == nil && state.PersistMode == streams.PersistAsync
}

// registry looks up what the agents have from there, and compares with it what they bring themselves. That it does not exist is
// found with the other streams.
func (e *Examination) registry(ctx context.Context) error {
	if len(e.cfg.Agents) == 0 {
		return nil
	}
	e.examined("registry of contracts, for %s", show.Count(len(e.cfg.References), "reference"))
	var missing, changed config.Faults
	err := e.conn.Permitted(ctx, func(ctx context.Context) (err error) {
		if missing, err = setup.LookUp(ctx, e.conn.Registry(), e.cfg); err == nil {
			changed, err = setup.Changed(ctx, e.conn.Registry(), e.cfg)
		}
		return err
	})
	switch {
	case notPermitted(err):
		if len(e.cfg.References) > 0 {
			e.found(finding.NotPermitted("read the registry of contracts", "whether it has what agents refer to"))
		}
		return nil
	case errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}):
		return nil
	}
	for _, f := range missing {
		e.found(finding.Error("contract_missing", f.String(), "start the service that publishes it, or run: agentd contracts push FILE"))
	}
	for _, f := range changed {
		e.found(finding.Error("contract_changed", f.String(), "give what was changed a version of its own"))
	}
	return err
}

// store is examined by opening and reading it.
func (e *Examination) store(ctx context.Context) {
	e.examined("store of runs: %s, %s", e.cfg.StoreKind(), setup.EncryptionText(e.cfg.Encryption))
	o, err := setup.StoreOptions(e.cfg)
	if err != nil {
		e.found(finding.Error("encryption_keys", "the store cannot be opened without its keys: "+err.Error(),
			"put the keys where encryption.keys says"))
		return
	}
	if e.cfg.Encryption.AllowPlaintext {
		e.found(finding.Warning("plaintext_allowed", "encryption.allow_plaintext is on: who can write to the store can begin runs in plaintext",
			"remove it when nobody needs the runs that began before encryption"))
	}
	if e.cfg.Retention.Hot > 0 && e.cfg.StoreKind() != config.StoreRedis {
		e.found(finding.Warning("hot_ignored", "retention.hot changes nothing: journals in JetStream are on disk from the beginning",
			"remove it, or keep runs in Redis"))
	}
	if e.cfg.Redis.Replicas > 0 && e.cfg.StoreKind() != config.StoreRedis {
		e.found(finding.Warning("redis_replicas_ignored", "redis.replicas changes nothing: runs are kept in JetStream, whose replicas are nats.replicas",
			"remove it, or keep runs in Redis"))
	}
	var findings []finding.Finding
	err = e.conn.Permitted(ctx, func(ctx context.Context) error {
		findings = worker.CheckStore(ctx, e.conn, o)
		return context.Cause(ctx)
	})
	if notPermitted(err) {
		findings = []finding.Finding{finding.NotPermitted("read the store of runs", "whether they can be opened")}
	}
	e.found(findings...)
}

func (e *Examination) worker(ctx context.Context, agent string) {
	e.examined("workers of %s", agent)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// No run has this name: a worker says so.
	_, err := client.New(e.conn, client.Options{}).Status(ctx, client.Run{Agent: agent, Name: "agentd doctor"})
	if notPermitted(err) {
		e.pulled(ctx, agent)
		return
	}
	if err == nil || errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		return
	}
	message := "no worker answers for agent " + agent
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		message += ": " + err.Error()
	}
	e.found(noWorker(message))
}

func noWorker(message string) finding.Finding {
	return finding.Warning("no_worker", message, "start one: agentd serve")
}

// paused looks whether an operator has paused an agent, and maybe forgotten it.
func (e *Examination) paused(ctx context.Context, agent string) {
	var p broker.AgentPause
	err := e.conn.Permitted(ctx, func(ctx context.Context) (err error) {
		p, err = e.conn.AgentPause(ctx, agent)
		return err
	})
	if err != nil || !p.Paused() {
		return // that it may not look at consumers was found before
	}
	until := "until it is resumed"
	if p.For != broker.Endless {
		until = "for another " + p.For.Round(time.Second).String()
	}
	e.found(finding.Warning("agent_paused", fmt.Sprintf("agent %s is paused %s: its runs do not begin", agent, until),
		"run, when they may: agentd agents resume "+agent))
}

// slightlyWrong is how wrong a worker's clock may be without a word.
const slightlyWrong = 5 * time.Second

// clocks looks at those of an agent's workers, where this user may ask all of them.
func (e *Examination) clocks(ctx context.Context, agent sdk.AgentSpec) {
	var told map[string]json.RawMessage
	err := e.conn.Permitted(ctx, func(ctx context.Context) (err error) {
		told, err = e.conn.Statistics(ctx, wire.NameToken(agent.Contract.Type))
		return err
	})
	if err != nil {
		return // it may not; whether there are workers is found without it
	}
	for _, id := range slices.Sorted(maps.Keys(told)) {
		var v worker.Vital
		if json.Unmarshal(told[id], &v) != nil {
			continue // it is not a worker
		}
		ahead := time.Duration(v.Ahead) * time.Millisecond
		if ahead.Abs() <= slightlyWrong {
			continue
		}
		f := finding.Warning("clock", fmt.Sprintf("worker %s of agent %s: %s", id, agent.Name, worker.ClockText(ahead)),
			"set that machine's clock (NTP); runs are dated by the broker's, but certificates and signatures go by the machine's")
		if ahead.Abs() > worker.MostAhead {
			f.Severity = finding.SeverityError
			f.Message += ", and the worker is not ready"
		}
		e.found(f)
	}
}

// pulled looks whether somebody takes an agent's messages. Workers themselves may not ask other workers, but may see that.
func (e *Examination) pulled(ctx context.Context, agent string) {
	var unread bool
	err := e.conn.Permitted(ctx, func(ctx context.Context) (err error) {
		unread, err = e.conn.Unread(ctx, streams.AgentConsumers(agent)...)
		return err
	})
	switch {
	case notPermitted(err):
		e.found(finding.NotPermitted("ask workers of "+agent, "whether there are any"))
	case err != nil:
		e.found(noWorker("no worker can be seen for agent " + agent + ": " + err.Error()))
	case unread:
		e.found(noWorker("no worker takes messages for agent " + agent + ", or all are busy"))
	}
}

// services looks whether somebody takes the calls that agents make.
func (e *Examination) services(ctx context.Context, services []provision.Service) {
	for _, s := range services {
		var unserved bool
		err := e.conn.Permitted(ctx, func(ctx context.Context) (err error) {
			unserved, err = e.conn.Unserved(ctx, s.Domain, s.Type)
			return err
		})
		switch {
		case notPermitted(err): // that it may not look at the broker was found before
			return
		case err != nil:
			e.found(finding.Warning("no_service", "whether somebody serves "+s.Type+" cannot be seen: "+err.Error(), "run: agentd doctor again"))
		case unserved:
			e.found(finding.Warning("no_service", "nobody serves "+s.Type+in(s.Domain)+": calls wait until their deadline", "start the service"))
		default:
			e.partlyServed(ctx, s)
		}
	}
}

// partlyServed looks whether a service reads its calls on all streams that they are divided into.
func (e *Examination) partlyServed(ctx context.Context, s provision.Service) {
	var unread []streams.ConsumerRef
	err := e.conn.Permitted(ctx, func(ctx context.Context) (err error) {
		unread, err = e.conn.PartlyRead(ctx, streams.ServiceConsumer(s.Domain, s.Type))
		return err
	})
	if err != nil || len(unread) == 0 {
		return // that it may not look, or cannot, was found before
	}
	var names []string
	for _, ref := range unread {
		names = append(names, streams.Name(e.conn.Subjects(), ref.Zone))
	}
	e.found(finding.Error("service_partly",
		fmt.Sprintf("who serves %s%s does not read %s: calls there wait until their deadline", s.Type, in(s.Domain), strings.Join(names, ", ")),
		"have its program read the consumers of all streams that calls are divided into (docs/wire.md, \"Streams\"), or serve it with one of our packages"))
}

func in(domain string) string {
	if domain == "" {
		return ""
	}
	return " in the domain " + domain
}

func notPermitted(err error) bool { return errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) }

// patience is how long a worker may take for its answer.
const patience = 2 * time.Second

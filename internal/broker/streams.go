package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentd/internal/days"
	"agentd/sdk/wire"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// AckWait is how long a worker's delivery lasts without being extended: the lease of a run. Heartbeat is how often it is extended.
// AckWait is not a whole second, so that redeliveries keep no step with deaths that do (ADR 0006).
const (
	AckWait   = 5300 * time.Millisecond
	Heartbeat = 2 * time.Second
)

// CallWait and CallHeartbeat are the same for calls that services and webhooks are given. Services are in languages where a handler that
// computes keeps its whole program from saying that it lives, and a call that comes twice is dearer than one that comes late.
const (
	CallWait      = 14300 * time.Millisecond
	CallHeartbeat = 5 * time.Second
)

// What a duplicate window must not exceed on streams that others publish to: with a longer one, anybody could use up the
// message id of somebody else's answer.
const shortestDuplicates = 100 * time.Millisecond

const (
	day         = days.Day
	margin      = 7 * day
	firedTTL    = 7 * day
	deadLetters = 90 * day
)

// Zone is a stream: a trust zone with its own publishers. Where a layout divides a zone, it is all of its streams, and each of them is a
// zone by itself (Layout.Zones).
type Zone string

// The zones. The stream's name is the upper-case root, "_" and the zone.
const (
	ZoneStart Zone = "START"
	ZoneIn    Zone = "IN"
	ZoneOut   Zone = "OUT"
	ZoneDone  Zone = "DONE"
	ZoneTimer Zone = "TMR"
	ZoneRun   Zone = "RUN"
	ZoneDLQ   Zone = "DLQ"
	// ZoneIndex is there only where somebody asked for the index of runs (Plan.Index).
	ZoneIndex Zone = "IDX"
	// ZoneCold is there only where journals leave Redis (Plan.Cold). No layout divides it: it is written once for each run, and hardly read.
	ZoneCold Zone = "COLD"
)

// StreamName is the name of a zone's stream.
func StreamName(s wire.Subjects, z Zone) string { return strings.ToUpper(s.Root()) + "_" + string(z) }

var zoneOf = map[wire.Kind]Zone{
	wire.KindStart: ZoneStart, wire.KindIn: ZoneIn, wire.KindCtl: ZoneIn, wire.KindOut: ZoneOut, wire.KindVoid: ZoneOut,
	wire.KindDone: ZoneDone, wire.KindTimer: ZoneTimer, wire.KindFire: ZoneTimer, wire.KindRun: ZoneRun,
	wire.KindBlob: ZoneRun, wire.KindSpec: ZoneRun, wire.KindDLQ: ZoneDLQ, wire.KindIndex: ZoneIndex,
	wire.KindCold: ZoneCold,
}

// streamOf is the stream that stores a subject, as far as it is known how streams are divided; streamFor finds that out.
func (c *Conn) streamOf(subject string) string {
	return StreamName(c.subjects, c.knownLayout().ZoneOf(subject))
}

// Plan is what should exist on the broker.
type Plan struct {
	// LongestRun and LongestCall bound retention: a stream keeps its messages a week longer. 0 is sdk.DefaultRunDeadline.
	LongestRun, LongestCall time.Duration
	// AnswersAge is how long answers and control messages are kept; 0 is sdk.DefaultAnswersAge. AnswersNeeded is the least that agents
	// need: they are kept as long, whatever AnswersAge says. 0 is as long as AnswersAge.
	AnswersAge, AnswersNeeded time.Duration
	// Replicas of each stream; 0 leaves existing streams as they are, and is 1 for new ones.
	Replicas int
	// PersistMode is that of the streams of calls, terminal events and timers. Empty leaves it as it is, and is PersistAsync where there are
	// none. The server changes it of no stream that is there. It is PersistDefault, whatever is asked for, in a cluster, behind a leaf node, and
	// where the server is older than 2.14.
	PersistMode PersistMode
	// Unreconciled is that no worker publishes again what the server forgets: then the mode is PersistDefault, and no other may be asked for.
	Unreconciled bool
	// AckWait is that of all consumers; 0 is AckWait for those of workers, and CallWait for those of services and webhooks. Tests of
	// redelivery shorten it.
	AckWait  time.Duration
	Agents   []AgentPlan
	Services []ServicePlan
	Webhooks []WebhookPlan
	// Index is whether there is to be an index of runs; false leaves one that there is.
	Index bool
	// Cold is whether finished journals leave the store of runs for archives. Without it a stream of archives is made by nobody, and one that
	// there is stays, as a plan with it would have it.
	Cold bool
	// Partitions is how many streams the zones of runs are divided into, as of NewLayout; 0 leaves them as they are, and is 1 where there
	// are none. It is for ever.
	Partitions int
}

// PersistMode is how a server keeps streams that journals fill again, by the names that it has for it.
type PersistMode string

const (
	// PersistDefault confirms what is written: where the server syncs every write, what is on disk.
	PersistDefault PersistMode = "default"
	// PersistAsync confirms before it is written: what the server loses the journals bring back (ADR 40).
	PersistAsync PersistMode = "async"
)

// Layout is that of a plan that says how many partitions there are; of another one, nothing is divided.
func (p Plan) Layout() Layout { return Layout{p.Partitions} }

// AgentPlan is an agent that workers serve. Type is its contract's type, under which other agents can call it.
type AgentPlan struct{ Name, Type string }

// ServicePlan is a service that answers calls of a contract.
type ServicePlan struct{ Domain, Type string }

// WebhookPlan is a webhook that is told of the calls of domains. Name is a subject token.
type WebhookPlan struct {
	Name    string
	Domains []string
}

// AnswersKept is how long AGENTD_IN keeps its messages. It is their age alone that ends them: whoever may publish there may delete nothing.
func (p Plan) AnswersKept() time.Duration {
	return max(cmp.Or(p.AnswersAge, sdk.DefaultAnswersAge), p.AnswersNeeded)
}

func (c *Conn) streams(p Plan) []jetstream.StreamConfig {
	replicas := max(p.Replicas, 1)
	letters := c.zoneStream(p, ZoneDLQ, deadLetters, wire.KindDLQ)
	letters.Discard = jetstream.DiscardOld // a flood of what nobody can handle must not hold up what is handled
	streams := append(c.streamsOfRuns(p),
		letters,
		bucketStream(GrantsBucket(c.subjects), grantHistory, replicas),
		guarded(registryStream(c.subjects, replicas)),
	)
	if p.Cold {
		archives := c.zoneStream(p, ZoneCold, 0, wire.KindCold)
		// An archive takes the place of the one before by a rollup: what the server answers on its subject, because somebody asked it to, must
		// not, and with a limit of one message would.
		archives.AllowRollup, archives.DenyDelete = true, true
		streams = append(streams, archives)
	}
	if p.Index { // last: see MakeIndex
		documents := c.zoneStream(p, ZoneIndex, 0)
		documents.Subjects = []string{c.indexFilter("*")}
		documents.MaxMsgsPerSubject, documents.AllowMsgTTL, documents.AllowDirect = 1, true, true
		documents.Discard = jetstream.DiscardOld // a newer document of a run is worth more than an older one
		if replicas == 1 {                       // no document is worth waiting for the disk: what is lost is made again
			documents.PersistMode = jetstream.AsyncPersistMode
		}
		streams = append(streams, documents)
	}
	return streams
}

// streamsOfRuns are those that runs need to go on. That of init events is made first: what it says of how zones are divided is settled.
func (c *Conn) streamsOfRuns(p Plan) []jetstream.StreamConfig {
	run := cmp.Or(p.LongestRun, sdk.DefaultRunDeadline)
	call := max(p.LongestCall, run) // a call may wait as long as its run
	start := guarded(c.zoneStream(p, ZoneStart, run+margin, wire.KindStart))
	start.Metadata = p.Layout().metadata()
	timer := c.zoneStream(p, ZoneTimer, 0, wire.KindTimer, wire.KindFire)
	timer.AllowMsgSchedules, timer.AllowMsgTTL = true, true
	timer.Discard = jetstream.DiscardOld // the server takes schedules with no other; Verify finds limits
	// Who waits for a run, and who answers a call, read one message by a request whose subject names the message's.
	out, done := c.zoneStream(p, ZoneOut, call+margin, wire.KindOut, wire.KindVoid), c.zoneStream(p, ZoneDone, run+margin, wire.KindDone)
	out.AllowDirect, done.AllowDirect = true, true
	journal := c.zoneStream(p, ZoneRun, 0, wire.KindRun, wire.KindBlob, wire.KindSpec)
	journal.AllowDirect, journal.AllowRollup = true, true // only workers publish there
	if p.PersistMode != PersistDefault && p.Replicas <= 1 {
		for _, made := range []*jetstream.StreamConfig{&out, &done, &timer} {
			made.PersistMode = jetstream.AsyncPersistMode
		}
	}
	in := guarded(c.zoneStream(p, ZoneIn, p.AnswersKept(), wire.KindIn, wire.KindCtl))
	return slices.Concat(
		[]jetstream.StreamConfig{start},
		c.zoneParts(p, ZoneIn, in, wire.KindIn, wire.KindCtl),
		c.zoneParts(p, ZoneOut, out, wire.KindOut, wire.KindVoid),
		[]jetstream.StreamConfig{done},
		c.zoneParts(p, ZoneTimer, timer, wire.KindTimer, wire.KindFire),
		c.zoneParts(p, ZoneRun, journal, wire.KindRun, wire.KindBlob, wire.KindSpec),
	)
}

// zoneStream is the stream of an undivided zone. Where somebody bounds it, what is there stays, and what is new waits for room: the oldest
// message may be the journal of the run that has waited longest.
func (c *Conn) zoneStream(p Plan, z Zone, age time.Duration, kinds ...wire.Kind) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: StreamName(c.subjects, z), Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage,
		MaxAge: age, Replicas: max(p.Replicas, 1), MaxMsgs: -1, MaxBytes: -1, Discard: jetstream.DiscardNew,
		Subjects: Layout{}.subjectsOf(c.subjects, 0, kinds),
	}
}

// zoneParts are the streams that the one of a zone is divided into.
func (c *Conn) zoneParts(p Plan, z Zone, whole jetstream.StreamConfig, kinds ...wire.Kind) []jetstream.StreamConfig {
	layout := p.Layout()
	zones := layout.Zones(z)
	if len(zones) == 1 {
		return []jetstream.StreamConfig{whole}
	}
	parts := make([]jetstream.StreamConfig, len(zones))
	for i, part := range zones {
		parts[i] = whole
		parts[i].Name, parts[i].Subjects = StreamName(c.subjects, part), layout.subjectsOf(c.subjects, i, kinds)
		parts[i].Metadata = layout.metadata()
	}
	return parts
}

// guarded is a stream of which nobody but its age removes anything, and in which nobody can use up the ids of others.
func guarded(cfg jetstream.StreamConfig) jetstream.StreamConfig {
	cfg.DenyDelete, cfg.DenyPurge, cfg.Duplicates = true, true, shortestDuplicates
	cfg.Discard = jetstream.DiscardNew
	return cfg
}

// ConsumerRef names a durable consumer of a zone.
type ConsumerRef struct {
	Zone Zone
	Name string
}

// UnroutedConsumer reads every init event, to answer those that no worker serves.
const UnroutedConsumer = "unrouted"

// InitConsumer reads the init events of an agent. Where it is not there, nobody serves the agent.
func InitConsumer(agent string) ConsumerRef {
	return ConsumerRef{ZoneStart, agentPrefix + wire.NameToken(agent)}
}

// AgentConsumers are the consumers that a worker with the agent reads, of undivided zones: see Layout.Consumers.
func AgentConsumers(agent string) []ConsumerRef {
	init := InitConsumer(agent)
	name := init.Name
	return []ConsumerRef{init, {ZoneIn, name}, {ZoneTimer, name}, {ZoneOut, name}}
}

// ServiceConsumer is the consumer that a service reads.
func ServiceConsumer(domain, contractType string) ConsumerRef {
	return ConsumerRef{ZoneOut, "svc_" + wire.DomainToken(domain) + "_" + wire.NameToken(contractType)}
}

// WebhookConsumer is the consumer that remembers what a webhook has been told.
func WebhookConsumer(name string) ConsumerRef { return ConsumerRef{ZoneOut, "hook_" + name} }

// Consumers are the durable consumers of a plan.
func Consumers(s wire.Subjects, p Plan) []ConsumerRef {
	var refs []ConsumerRef
	for _, c := range (&Conn{subjects: s}).consumers(p) {
		refs = append(refs, c.ConsumerRef)
	}
	return refs
}

// Streams are the names of a plan's streams, the buckets' included.
func Streams(s wire.Subjects, p Plan) []string {
	var names []string
	for _, c := range (&Conn{subjects: s}).streams(p) {
		names = append(names, c.Name)
	}
	return names
}

type consumerPlan struct {
	ConsumerRef
	filters []string
	ackWait time.Duration
	reader  reader
	// metadata says of how many consumers of the name this is one; nil is one.
	metadata map[string]string
}

// reader is who reads a consumer.
type reader int

const (
	workers reader = iota
	// aService has a consumer whose name does not say where the domain ends and the type begins.
	aService
	aHook
)

func (c *Conn) consumers(p Plan) []consumerPlan {
	root := c.subjects.Root()
	var plans []consumerPlan
	add := func(ref ConsumerRef, of reader, filters ...string) {
		wait := CallWait
		if of == workers {
			wait = AckWait
		}
		layout := p.Layout()
		for _, part := range layout.Consumers(ref) {
			plan := consumerPlan{ConsumerRef: part, filters: filters, ackWait: cmp.Or(p.AckWait, wait), reader: of}
			if part != ref {
				plan.metadata = layout.metadata()
			}
			plans = append(plans, plan)
		}
	}
	add(ConsumerRef{ZoneStart, UnroutedConsumer}, workers, c.subjects.All(wire.KindStart))
	for _, a := range p.Agents {
		agent, kind := wire.NameToken(a.Name), wire.NameToken(a.Type)
		refs := AgentConsumers(a.Name)
		add(refs[0], workers, c.subjects.Start(a.Name), c.subjects.Start(a.Name)+".*")
		add(refs[1], workers, root+".in.*.*."+agent+".>", root+".ctl.*."+agent+".>")
		add(refs[2], workers, root+".fire."+agent+".>")
		add(refs[3], workers, root+".out.*."+kind+".>", root+".void.*."+kind+".>")
	}
	for _, s := range p.Services {
		tail := wire.DomainToken(s.Domain) + "." + wire.NameToken(s.Type) + ".>"
		add(ServiceConsumer(s.Domain, s.Type), aService, root+".out."+tail, root+".void."+tail)
	}
	for _, h := range p.Webhooks {
		var filters []string
		for _, domain := range h.Domains {
			token := domain
			if domain != "*" {
				token = wire.DomainToken(domain)
			}
			filters = append(filters, root+".out."+token+".>")
		}
		add(WebhookConsumer(h.Name), aHook, filters...)
	}
	return plans
}

// check reports every name that makes no subject, and every two consumers that would be one.
func (c *Conn) check(p Plan) error {
	var faults []sdk.Fault
	fault := func(path, expected, got string) {
		faults = append(faults, sdk.Fault{Path: path, Expected: expected, Got: got})
	}
	name := func(path, name string, err error) {
		if err != nil {
			fault(path, "a name", strconv.Quote(name))
		}
	}
	for i, a := range p.Agents {
		name(fmt.Sprintf("$.agents[%d].name", i), a.Name, wire.CheckName(a.Name))
		name(fmt.Sprintf("$.agents[%d].type", i), a.Type, wire.CheckName(a.Type))
	}
	for i, s := range p.Services {
		name(fmt.Sprintf("$.services[%d].domain", i), s.Domain, wire.CheckDomain(s.Domain))
		name(fmt.Sprintf("$.services[%d].type", i), s.Type, wire.CheckName(s.Type))
	}
	if !slices.Contains([]PersistMode{"", PersistDefault, PersistAsync}, p.PersistMode) {
		fault("nats.persist_mode", "default or async", strconv.Quote(string(p.PersistMode)))
	}
	if p.Unreconciled && p.PersistMode == PersistAsync {
		fault("nats.persist_mode", "default, because reconciliation is turned off, which brings back what the server forgets", strconv.Quote(string(p.PersistMode)))
	}
	filters := map[ConsumerRef]string{}
	for _, want := range c.consumers(p) {
		mine := strings.Join(want.filters, " ")
		if other, ok := filters[want.ConsumerRef]; ok && other != mine {
			fault("consumer "+want.Name, "one owner; rename an agent, a domain or a type", other+" and "+mine)
		}
		filters[want.ConsumerRef] = mine
	}
	if faults == nil {
		return nil
	}
	return &sdk.Error{Code: sdk.CodeConfig, Message: "agents and services cannot be provisioned", Faults: faults}
}

func (p consumerPlan) config() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: p.Name, FilterSubjects: p.filters, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: p.ackWait, MaxDeliver: -1, MaxAckPending: -1, DeliverPolicy: jetstream.DeliverAllPolicy, Metadata: p.metadata,
	}
}

// HasStream reports whether the stream of a zone exists that no layout divides.
func (c *Conn) HasStream(ctx context.Context, z Zone) (bool, error) {
	name := StreamName(c.subjects, z)
	_, err := c.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for stream %s: %w", name, err)
	}
	return true, nil
}

// HasConsumer reports whether a consumer exists.
func (c *Conn) HasConsumer(ctx context.Context, ref ConsumerRef) (bool, error) {
	_, err := c.js.Consumer(ctx, StreamName(c.subjects, ref.Zone), ref.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return err == nil, err
}

// MissingConsumers are those of refs that do not exist.
func (c *Conn) MissingConsumers(ctx context.Context, refs ...ConsumerRef) ([]ConsumerRef, error) {
	there, err := atOnce(len(refs), func(i int) (bool, error) {
		exists, err := c.HasConsumer(ctx, refs[i])
		if err != nil {
			err = fmt.Errorf("look for consumer %s: %w", refs[i].Name, err)
		}
		return exists, err
	})
	if err != nil {
		return nil, err
	}
	var missing []ConsumerRef
	for i, ref := range refs {
		if !there[i] {
			missing = append(missing, ref)
		}
	}
	return missing, nil
}

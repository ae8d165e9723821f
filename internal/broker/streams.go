package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

var userInfo = regexp.MustCompile(`//[^/@,]+@`)

// AckWait is how long a delivery lasts without being extended: the lease of a run. Heartbeat is how often it is extended.
const (
	AckWait   = 15 * time.Second
	Heartbeat = 5 * time.Second
)

// What a duplicate window must not exceed on streams that others publish to: with a longer one, anybody could use up the
// message id of somebody else's answer.
const shortestDuplicates = 100 * time.Millisecond

const (
	day         = 24 * time.Hour
	margin      = 7 * day
	firedTTL    = 7 * day
	deadLetters = 90 * day
)

// Zone is a stream: a trust zone with its own publishers.
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
)

// StreamName is the name of a zone's stream.
func StreamName(s sdk.Subjects, z Zone) string { return strings.ToUpper(s.Root()) + "_" + string(z) }

var zoneOf = map[sdk.Kind]Zone{
	sdk.KindStart: ZoneStart, sdk.KindIn: ZoneIn, sdk.KindCtl: ZoneIn, sdk.KindOut: ZoneOut, sdk.KindVoid: ZoneOut,
	sdk.KindDone: ZoneDone, sdk.KindTimer: ZoneTimer, sdk.KindFire: ZoneTimer, sdk.KindRun: ZoneRun,
	sdk.KindBlob: ZoneRun, sdk.KindSpec: ZoneRun, sdk.KindDLQ: ZoneDLQ,
}

// streamOf is the stream that stores a subject.
func (c *Conn) streamOf(subject string) string {
	rest := strings.TrimPrefix(subject, c.subjects.Root()+".")
	kind, _, _ := strings.Cut(rest, ".")
	return StreamName(c.subjects, zoneOf[sdk.Kind(kind)])
}

// Plan is what should exist on the broker.
type Plan struct {
	// LongestRun and LongestCall bound retention: a stream keeps its messages a week longer. 0 is sdk.DefaultRunDeadline.
	LongestRun, LongestCall time.Duration
	// Replicas of each stream; 0 is 1.
	Replicas int
	Agents   []AgentPlan
	Services []ServicePlan
}

// AgentPlan is an agent that workers serve. Type is its contract's type, under which other agents can call it.
type AgentPlan struct{ Name, Type string }

// ServicePlan is a service that answers calls of a contract.
type ServicePlan struct{ Domain, Type string }

// Change is one thing that Provision did.
type Change struct {
	// Kind is "stream" or "consumer"; Action "created" or "updated".
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Action string `json:"action"`
}

func (c *Conn) streams(p Plan) []jetstream.StreamConfig {
	replicas := max(p.Replicas, 1)
	run, call := p.LongestRun, p.LongestCall
	if run == 0 {
		run = sdk.DefaultRunDeadline
	}
	call = max(call, run) // a call may wait as long as its run
	base := func(z Zone, age time.Duration, kinds ...sdk.Kind) jetstream.StreamConfig {
		cfg := jetstream.StreamConfig{
			Name: StreamName(c.subjects, z), Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage,
			MaxAge: age, Replicas: replicas, MaxMsgs: -1, MaxBytes: -1,
		}
		for _, k := range kinds {
			cfg.Subjects = append(cfg.Subjects, c.subjects.All(k))
		}
		return cfg
	}
	guarded := func(cfg jetstream.StreamConfig) jetstream.StreamConfig {
		cfg.DenyDelete, cfg.DenyPurge, cfg.Duplicates = true, true, shortestDuplicates
		cfg.Discard = jetstream.DiscardNew
		return cfg
	}
	timer := base(ZoneTimer, 0, sdk.KindTimer, sdk.KindFire)
	timer.AllowMsgSchedules, timer.AllowMsgTTL = true, true
	journal := base(ZoneRun, 0, sdk.KindRun, sdk.KindBlob, sdk.KindSpec)
	journal.AllowDirect = true
	return []jetstream.StreamConfig{
		guarded(base(ZoneStart, run+margin, sdk.KindStart)),
		guarded(base(ZoneIn, margin, sdk.KindIn, sdk.KindCtl)),
		base(ZoneOut, call+margin, sdk.KindOut, sdk.KindVoid),
		base(ZoneDone, run+margin, sdk.KindDone),
		timer, journal,
		base(ZoneDLQ, deadLetters, sdk.KindDLQ),
	}
}

// ConsumerRef names a durable consumer of a zone.
type ConsumerRef struct {
	Zone Zone
	Name string
}

// UnroutedConsumer reads every init event, to answer those that no worker serves.
const UnroutedConsumer = "unrouted"

// AgentConsumers are the consumers that a worker with the agent reads.
func AgentConsumers(agent string) []ConsumerRef {
	name := "agent_" + sdk.NameToken(agent)
	return []ConsumerRef{{ZoneStart, name}, {ZoneIn, name}, {ZoneTimer, name}, {ZoneOut, name}}
}

// ServiceConsumer is the consumer that a service reads.
func ServiceConsumer(domain, contractType string) ConsumerRef {
	return ConsumerRef{ZoneOut, "svc_" + sdk.DomainToken(domain) + "_" + sdk.NameToken(contractType)}
}

type consumerPlan struct {
	ConsumerRef
	filters []string
}

func (c *Conn) consumers(p Plan) []consumerPlan {
	root := c.subjects.Root()
	plans := []consumerPlan{{ConsumerRef{ZoneStart, UnroutedConsumer}, []string{c.subjects.All(sdk.KindStart)}}}
	for _, a := range p.Agents {
		agent, kind := sdk.NameToken(a.Name), sdk.NameToken(a.Type)
		refs := AgentConsumers(a.Name)
		plans = append(plans,
			consumerPlan{refs[0], []string{c.subjects.Start(a.Name), c.subjects.Start(a.Name) + ".*"}},
			consumerPlan{refs[1], []string{root + ".in.*.*." + agent + ".>", root + ".ctl.*." + agent + ".>"}},
			consumerPlan{refs[2], []string{root + ".fire." + agent + ".>"}},
			consumerPlan{refs[3], []string{root + ".out.*." + kind + ".>", root + ".void.*." + kind + ".>"}},
		)
	}
	for _, s := range p.Services {
		tail := sdk.DomainToken(s.Domain) + "." + sdk.NameToken(s.Type) + ".>"
		plans = append(plans, consumerPlan{
			ServiceConsumer(s.Domain, s.Type), []string{root + ".out." + tail, root + ".void." + tail},
		})
	}
	return plans
}

func (p consumerPlan) config() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: p.Name, FilterSubjects: p.filters, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: AckWait, MaxDeliver: -1, MaxAckPending: -1, DeliverPolicy: jetstream.DeliverAllPolicy,
	}
}

// Provision makes the broker match the plan, and says what it changed. It may be repeated and removes nothing.
func (c *Conn) Provision(ctx context.Context, p Plan) ([]Change, error) {
	var changes []Change
	for _, want := range c.streams(p) {
		action, err := c.provisionStream(ctx, want)
		if err != nil {
			return changes, fmt.Errorf("provision stream %s: %w", want.Name, err)
		}
		if action != "" {
			changes = append(changes, Change{"stream", want.Name, action})
		}
	}
	for _, want := range c.consumers(p) {
		action, err := c.provisionConsumer(ctx, want)
		if err != nil {
			return changes, fmt.Errorf("provision consumer %s: %w", want.Name, err)
		}
		if action != "" {
			changes = append(changes, Change{"consumer", StreamName(c.subjects, want.Zone) + "/" + want.Name, action})
		}
	}
	return changes, nil
}

func (c *Conn) provisionStream(ctx context.Context, want jetstream.StreamConfig) (string, error) {
	have, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = c.js.CreateStream(ctx, want)
		return "created", err
	}
	if err != nil {
		return "", err
	}
	got := have.CachedInfo().Config
	if sameStream(got, want) {
		return "", nil
	}
	// A plan of fewer agents must not shorten what others on the same server need.
	want.MaxAge = longerAge(got.MaxAge, want.MaxAge)
	if sameStream(got, want) {
		return "", nil
	}
	_, err = c.js.UpdateStream(ctx, want)
	return "updated", err
}

// longerAge is the longer retention; 0 is for ever.
func longerAge(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// sameStream compares what a plan decides; the server fills in the rest.
func sameStream(got, want jetstream.StreamConfig) bool {
	duplicates := want.Duplicates == 0 || got.Duplicates == want.Duplicates
	return strings.Join(got.Subjects, " ") == strings.Join(want.Subjects, " ") && got.MaxAge == want.MaxAge &&
		got.Replicas == want.Replicas && duplicates && got.DenyDelete == want.DenyDelete &&
		got.DenyPurge == want.DenyPurge && got.AllowDirect == want.AllowDirect && got.Discard == want.Discard &&
		got.AllowMsgSchedules == want.AllowMsgSchedules && got.AllowMsgTTL == want.AllowMsgTTL
}

func (c *Conn) provisionConsumer(ctx context.Context, want consumerPlan) (string, error) {
	stream := StreamName(c.subjects, want.Zone)
	have, err := c.js.Consumer(ctx, stream, want.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = c.js.CreateConsumer(ctx, stream, want.config())
		return "created", err
	}
	if err != nil {
		return "", err
	}
	got, cfg := have.CachedInfo().Config, want.config()
	if len(got.FilterSubjects) == 0 && got.FilterSubject != "" {
		got.FilterSubjects = []string{got.FilterSubject}
	}
	if strings.Join(got.FilterSubjects, " ") == strings.Join(cfg.FilterSubjects, " ") && got.AckWait == cfg.AckWait &&
		got.MaxDeliver == cfg.MaxDeliver && got.MaxAckPending == cfg.MaxAckPending {
		return "", nil
	}
	_, err = c.js.UpdateConsumer(ctx, stream, cfg)
	return "updated", err
}

// HasConsumer reports whether a consumer exists.
func (c *Conn) HasConsumer(ctx context.Context, ref ConsumerRef) (bool, error) {
	_, err := c.js.Consumer(ctx, StreamName(c.subjects, ref.Zone), ref.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return err == nil, err
}

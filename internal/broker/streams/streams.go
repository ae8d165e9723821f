// Package streams says which streams and consumers there are, by name, and what is on which. It only declares them: package provision makes
// them, and package broker publishes to them and reads them.
package streams

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk/wire"
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

// Zone is a stream: a trust zone with its own publishers. Where a layout divides a zone, it is all of its streams, and each of them is a
// zone by itself (Layout.Zones).
type Zone string

// The zones. A stream's name is the upper-case root, "_" and the zone.
const (
	Start Zone = "START"
	In    Zone = "IN"
	Out   Zone = "OUT"
	Done  Zone = "DONE"
	Timer Zone = "TMR"
	Run   Zone = "RUN"
	DLQ   Zone = "DLQ"
	// Index is there only where somebody asked for the index of runs.
	Index Zone = "IDX"
	// Cold is there only where journals leave Redis. No layout divides it: it is written once for each run, and hardly read.
	Cold Zone = "COLD"
)

// Name is the name of a zone's stream.
func Name(s wire.Subjects, z Zone) string { return strings.ToUpper(s.Root()) + "_" + string(z) }

var zoneOf = map[wire.Kind]Zone{
	wire.KindStart: Start, wire.KindIn: In, wire.KindCtl: In, wire.KindOut: Out, wire.KindVoid: Out,
	wire.KindDone: Done, wire.KindTimer: Timer, wire.KindFire: Timer, wire.KindRun: Run,
	wire.KindBlob: Run, wire.KindSpec: Run, wire.KindDLQ: DLQ, wire.KindIndex: Index,
	wire.KindCold: Cold,
}

// Kinds are the kinds of subjects on a zone, in no order.
func (z Zone) Kinds() []wire.Kind {
	var kinds []wire.Kind
	for kind, of := range zoneOf {
		if of == Whole(z) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Rebuildable are the zones whose streams provisioning cannot make as a plan says once they are there: the server neither changes the
// persistence of a stream nor gives replicas to an asynchronous one. Package rebuild makes them anew. They are those that journals fill again.
var Rebuildable = []Zone{Out, Done, Timer}

// PersistMode is how a server keeps streams that journals fill again, by the names that it has for it.
type PersistMode string

const (
	// PersistDefault confirms what is written: where the server syncs every write, what is on disk.
	PersistDefault PersistMode = "default"
	// PersistAsync confirms before it is written: what the server loses the journals bring back (ADR 40).
	PersistAsync PersistMode = "async"
)

// PersistModeOf is that of a stream that was made.
func PersistModeOf(s jetstream.StreamConfig) PersistMode {
	if s.PersistMode == jetstream.AsyncPersistMode {
		return PersistAsync
	}
	return PersistDefault
}

// ConsumerRef names a durable consumer of a zone.
type ConsumerRef struct {
	Zone Zone
	Name string
}

// UnroutedConsumer reads every init event, to answer those that no worker serves.
const UnroutedConsumer = "unrouted"

// agentPrefix begins the names of agents' consumers.
const agentPrefix = "agent_"

// OfAgent reports whether a consumer of that name is one of those of an agent's workers.
func OfAgent(consumer string) bool { return strings.HasPrefix(consumer, agentPrefix) }

// InitConsumer reads the init events of an agent. Where it is not there, nobody serves the agent.
func InitConsumer(agent string) ConsumerRef {
	return ConsumerRef{Start, agentPrefix + wire.NameToken(agent)}
}

// AgentConsumers are the consumers that a worker with the agent reads, of undivided zones: see Layout.Consumers.
func AgentConsumers(agent string) []ConsumerRef {
	init := InitConsumer(agent)
	name := init.Name
	return []ConsumerRef{init, {In, name}, {Timer, name}, {Out, name}}
}

// ServiceConsumer is the consumer that a service reads.
func ServiceConsumer(domain, contractType string) ConsumerRef {
	return ConsumerRef{Out, "svc_" + wire.DomainToken(domain) + "_" + wire.NameToken(contractType)}
}

// WebhookConsumer is the consumer that remembers what a webhook has been told.
func WebhookConsumer(name string) ConsumerRef { return ConsumerRef{Out, "hook_" + name} }

// GrantsBucket is the key-value bucket with grants wider than a run.
func GrantsBucket(s wire.Subjects) string { return strings.ToUpper(s.Root()) + "_GRANTS" }

// RegistryBucket is that with the published contract versions.
func RegistryBucket(s wire.Subjects) string { return strings.ToUpper(s.Root()) + "_CONTRACTS" }

// OfBucket is the name of a bucket's stream.
func OfBucket(bucket string) string { return "KV_" + bucket }

// What follows the kind in subjects of the zone of timers, where a timer has its agent: LeaseToken in a lease's, ParkedToken in that of a parked
// run's mark.
const (
	LeaseToken  = "lease"
	ParkedToken = "parked"
)

// OutageLease is the name of the lease on a model that is away: who has it may ask the model, and it says until when nobody else may.
func OutageLease(key string) string { return "model." + key }

// Remedy is what to do where a stream or a consumer is missing.
const Remedy = "run: agentd provision"

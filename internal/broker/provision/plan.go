package provision

import (
	"cmp"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/days"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// What a duplicate window must not exceed on streams that others publish to: with a longer one, anybody could use up the
// message id of somebody else's answer.
const shortestDuplicates = 100 * time.Millisecond

const (
	// margin is how much longer a stream keeps its messages than runs and calls may last.
	margin      = 7 * days.Day
	deadLetters = 90 * days.Day
)

// Plan is what should exist on the broker.
type Plan struct {
	// LongestRun and LongestCall bound retention: a stream keeps its messages a week longer. 0 is sdk.DefaultRunDeadline.
	LongestRun, LongestCall time.Duration
	// AnswersAge is how long answers and control messages are kept; 0 is sdk.DefaultAnswersAge. AnswersNeeded is the least that agents
	// need: they are kept as long, whatever AnswersAge says. 0 is as long as AnswersAge.
	AnswersAge, AnswersNeeded time.Duration
	// Replicas of each stream; 0 leaves existing streams as they are, and is 1 for new ones.
	Replicas int
	// PersistMode is that of the streams of calls, terminal events and timers. Empty leaves it as it is, and is streams.PersistAsync where there
	// are none. The server changes it of no stream that is there. It is streams.PersistDefault, whatever is asked for, in a cluster, behind a
	// leaf node, and where the server is older than 2.14.
	PersistMode streams.PersistMode
	// Unreconciled is that no worker publishes again what the server forgets: then the mode is streams.PersistDefault, and no other may be
	// asked for.
	Unreconciled bool
	// AckWait is that of all consumers; 0 is streams.AckWait for those of workers, and streams.CallWait for those of services and webhooks. Tests of
	// redelivery shorten it.
	AckWait  time.Duration
	Agents   []Agent
	Services []Service
	Webhooks []Webhook
	// Index is whether there is to be an index of runs; false leaves one that there is.
	Index bool
	// Cold is whether finished journals leave the store of runs for archives. Without it a stream of archives is made by nobody, and one that
	// there is stays, as a plan with it would have it.
	Cold bool
	// Partitions is how many streams the zones of runs are divided into, as of streams.NewLayout; 0 leaves them as they are, and is 1 where there
	// are none. It is for ever.
	Partitions int
}

// Layout is that of a plan that says how many partitions there are; of another one, nothing is divided.
func (p Plan) Layout() streams.Layout {
	layout, _ := streams.NewLayout(max(p.Partitions, 1)) // no other number gets as far as this: see laidOut
	return layout
}

// Agent is an agent that workers serve. Type is its contract's type, under which other agents can call it.
type Agent struct{ Name, Type string }

// Service is a service that answers calls of a contract.
type Service struct{ Domain, Type string }

// Webhook is a webhook that is told of the calls of domains. Name is a subject token.
type Webhook struct {
	Name    string
	Domains []string
}

// AnswersKept is how long AGENTD_IN keeps its messages. It is their age alone that ends them: whoever may publish there may delete nothing.
func (p Plan) AnswersKept() time.Duration {
	return max(cmp.Or(p.AnswersAge, sdk.DefaultAnswersAge), p.AnswersNeeded)
}

// Streams are a plan's streams, the buckets' included.
func (p Plan) Streams(s wire.Subjects) []jetstream.StreamConfig {
	replicas := max(p.Replicas, 1)
	letters := p.zone(s, streams.DLQ, deadLetters, wire.KindDLQ)
	letters.Discard = jetstream.DiscardOld // a flood of what nobody can handle must not hold up what is handled
	all := append(p.ofRuns(s),
		letters,
		bucket(streams.GrantsBucket(s), grantHistory, replicas),
		guarded(registry(s, replicas)),
	)
	if p.Cold {
		archives := p.zone(s, streams.Cold, 0, wire.KindCold)
		// An archive takes the place of the one before by a rollup: what the server answers on its subject, because somebody asked it to, must
		// not, and with a limit of one message would.
		archives.AllowRollup, archives.DenyDelete = true, true
		all = append(all, archives)
	}
	if p.Index { // last: see Index
		documents := p.zone(s, streams.Index, 0)
		documents.Subjects = []string{s.Index(wire.RunKey{Partition: "*", Token: "*"})}
		documents.MaxMsgsPerSubject, documents.AllowMsgTTL, documents.AllowDirect = 1, true, true
		documents.Discard = jetstream.DiscardOld // a newer document of a run is worth more than an older one
		if replicas == 1 {                       // no document is worth waiting for the disk: what is lost is made again
			documents.PersistMode = jetstream.AsyncPersistMode
		}
		all = append(all, documents)
	}
	return all
}

// ofRuns are those that runs need to go on. That of init events is made first: what it says of how zones are divided is settled.
func (p Plan) ofRuns(s wire.Subjects) []jetstream.StreamConfig {
	run := cmp.Or(p.LongestRun, sdk.DefaultRunDeadline)
	call := max(p.LongestCall, run) // a call may wait as long as its run
	start := guarded(p.zone(s, streams.Start, run+margin, wire.KindStart))
	start.Metadata = p.Layout().Metadata()
	timer := p.zone(s, streams.Timer, 0, wire.KindTimer, wire.KindFire)
	timer.AllowMsgSchedules, timer.AllowMsgTTL = true, true
	timer.Discard = jetstream.DiscardOld // the server takes schedules with no other; Verify finds limits
	// Who waits for a run, and who answers a call, read one message by a request whose subject names the message's.
	out, done := p.zone(s, streams.Out, call+margin, wire.KindOut, wire.KindVoid), p.zone(s, streams.Done, run+margin, wire.KindDone)
	out.AllowDirect, done.AllowDirect = true, true
	journal := p.zone(s, streams.Run, 0, wire.KindRun, wire.KindBlob, wire.KindSpec)
	journal.AllowDirect, journal.AllowRollup = true, true // only workers publish there
	if p.PersistMode != streams.PersistDefault && p.Replicas <= 1 {
		for _, made := range []*jetstream.StreamConfig{&out, &done, &timer} {
			made.PersistMode = jetstream.AsyncPersistMode
		}
	}
	in := guarded(p.zone(s, streams.In, p.AnswersKept(), wire.KindIn, wire.KindCtl))
	return slices.Concat(
		[]jetstream.StreamConfig{start},
		p.parts(s, streams.In, in, wire.KindIn, wire.KindCtl),
		p.parts(s, streams.Out, out, wire.KindOut, wire.KindVoid),
		[]jetstream.StreamConfig{done},
		p.parts(s, streams.Timer, timer, wire.KindTimer, wire.KindFire),
		p.parts(s, streams.Run, journal, wire.KindRun, wire.KindBlob, wire.KindSpec),
	)
}

// zone is the stream of an undivided zone. Where somebody bounds it, what is there stays, and what is new waits for room: the oldest
// message may be the journal of the run that has waited longest.
func (p Plan) zone(s wire.Subjects, z streams.Zone, age time.Duration, kinds ...wire.Kind) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: streams.Name(s, z), Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage,
		MaxAge: age, Replicas: max(p.Replicas, 1), MaxMsgs: -1, MaxBytes: -1, Discard: jetstream.DiscardNew,
		Subjects: streams.Layout{}.Subjects(s, 0, kinds),
	}
}

// parts are the streams that the one of a zone is divided into.
func (p Plan) parts(s wire.Subjects, z streams.Zone, whole jetstream.StreamConfig, kinds ...wire.Kind) []jetstream.StreamConfig {
	layout := p.Layout()
	zones := layout.Zones(z)
	if len(zones) == 1 {
		return []jetstream.StreamConfig{whole}
	}
	parts := make([]jetstream.StreamConfig, len(zones))
	for i, part := range zones {
		parts[i] = whole
		parts[i].Name, parts[i].Subjects = streams.Name(s, part), layout.Subjects(s, i, kinds)
		parts[i].Metadata = layout.Metadata()
	}
	return parts
}

// guarded is a stream of which nobody but its age removes anything, and in which nobody can use up the ids of others.
func guarded(cfg jetstream.StreamConfig) jetstream.StreamConfig {
	cfg.DenyDelete, cfg.DenyPurge, cfg.Duplicates = true, true, shortestDuplicates
	cfg.Discard = jetstream.DiscardNew
	return cfg
}

// grantHistory is how many states of a key of grants are kept, for who wants to know who used what.
const grantHistory = 64

// bucket is the stream of a key-value bucket.
func bucket(name string, history int64, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: streams.OfBucket(name), Subjects: []string{"$KV." + name + ".>"}, Retention: jetstream.LimitsPolicy,
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: history, MaxMsgs: -1, MaxBytes: -1,
		DenyDelete: true, AllowRollup: true, AllowDirect: true, Replicas: replicas,
	}
}

// registryHistory is how many records of a key are kept: its publication, and how it was removed and restored. When they
// are used up, nothing more is taken, so that what was published first is never forgotten.
const registryHistory = 64

// registry is the stream of the registry's bucket. Services publish their contracts there, so it is guarded like the other streams
// that others publish to.
func registry(s wire.Subjects, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: streams.OfBucket(streams.RegistryBucket(s)), Subjects: []string{"$KV." + streams.RegistryBucket(s) + ".>"}, Retention: jetstream.LimitsPolicy,
		Storage: jetstream.FileStorage, MaxMsgsPerSubject: registryHistory, DiscardNewPerSubject: true, MaxMsgs: -1,
		MaxBytes: -1, AllowDirect: true, Replicas: replicas,
	}
}

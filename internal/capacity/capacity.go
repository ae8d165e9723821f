// Package capacity says what servers, memory and workers a load needs, from what was measured. It is pure; docs/scale.md explains it.
package capacity

import (
	"cmp"
	"math"
	"slices"
	"time"

	"agentd/internal/days"
)

// Load is what is asked of a system.
type Load struct {
	// RunsPerSecond are started, each with Turns calls of a service, one a turn, and a final answer.
	RunsPerSecond float64 `json:"runs_per_second"`
	Turns         int     `json:"turns"`
	// TurnBytes is what a turn adds to a conversation, a third each: what the model says, the argument of its call, and the result.
	TurnBytes int `json:"turn_bytes"`
	// ModelTime is how long a model takes for a reply, CallTime a service, or a person, for an answer.
	ModelTime time.Duration `json:"model_time"`
	CallTime  time.Duration `json:"call_time"`
	// History, AnswersAge and Deadline are those of the configuration. CallsKept is how long calls are there when their run has ended; 0 is
	// for as long as their stream keeps any.
	History    time.Duration `json:"history"`
	CallsKept  time.Duration `json:"calls_kept"`
	AnswersAge time.Duration `json:"answers_age"`
	Deadline   time.Duration `json:"deadline"`
	// Replicas of each stream on Servers, each with Memory bytes.
	Replicas int     `json:"replicas"`
	Servers  int     `json:"servers"`
	Memory   float64 `json:"memory"`
	// Partitions are the streams that journals are divided into, and timers, calls and answers too: nats.partitions.
	Partitions int `json:"partitions"`
	// Redis keeps the journals, in RedisMemory bytes.
	Redis       bool    `json:"redis"`
	RedisMemory float64 `json:"redis_memory"`
	// Slots of a worker, which has Cores.
	Slots int `json:"slots"`
	Cores int `json:"cores"`
}

const (
	margin      = 7 * days.Day  // how much longer than its run a message is kept
	fired       = 7 * days.Day  // how long a fired timer is
	deadLetters = 90 * days.Day // how long a dead letter is: until then, it may be redriven
)

// Stream is what a stream has to take, and keeps in the end.
type Stream struct {
	Name string `json:"name"`
	// Partitions are the streams that it consists of, all of the same load; the figures are those of all of them.
	Partitions int `json:"partitions"`
	// MessagesPerSecond are written to it, and BytesPerSecond of what stays.
	MessagesPerSecond float64 `json:"messages_per_second"`
	BytesPerSecond    float64 `json:"bytes_per_second"`
	// Kept is for how long; Messages, Subjects and Bytes of one replica it keeps then.
	Kept     time.Duration `json:"kept"`
	Messages float64       `json:"messages"`
	Subjects float64       `json:"subjects"`
	Bytes    float64       `json:"bytes"`
}

// Cost is what one run writes to a stream, and what of it is there when it has ended: an armed timer is gone then.
type Cost struct{ Writes, Messages, Subjects, Bytes float64 }

// Streams in the order in which they are told of.
const (
	Start  = "START"
	In     = "IN"
	Out    = "OUT"
	Done   = "DONE"
	Timers = "TMR"
	Runs   = "RUN"
)

// asynchronous are the streams that one server confirms before it has written them (ADR 40).
var asynchronous = []string{Out, Done, Timers}

// Run is what a run of so many turns costs each stream. said is how many bytes each turn has of each: text, argument and result. redis
// keeps the journal elsewhere.
func Run(turns, said int, redis bool) map[string]Cost {
	n, size := float64(turns), float64(said)
	c := map[string]Cost{
		Start:  {1, 1, 0, initBytes}, // all runs of an agent share a subject
		Out:    {n, n, n, n * (callBytes + size)},
		In:     {n, n, n, n * (answerBytes + size)},
		Done:   {1, 1, 1, terminalBytes},
		Timers: {timerWrites, 1, 1, firedBytes},
		Runs:   {},
	}
	if !redis {
		entries := fixedEntries + turnEntries*n
		c[Runs] = Cost{entries, entries, 1, fixedBytes + n*(turnBytes+3*size)}
	}
	return c
}

// Journal is what a run's journal takes of Redis' memory.
func Journal(turns, said int) float64 {
	return redisFixedBytes + float64(turns)*(redisTurnBytes+3*redisRounds*float64(said))
}

// Tombstone is what is left of a journal whose history was removed, in the memory of Redis or in a stream.
func Tombstone(redis bool) float64 {
	if redis {
		return redisTombstoneBytes
	}
	return tombstoneBytes
}

// tombstones is how long a name stays taken after a run's history was removed: until nothing can arrive for it any more.
func (l *Load) tombstones() time.Duration {
	longest := max(deadLetters, l.Deadline+margin, l.AnswersAge)
	return max(l.Deadline-l.History, 0) + longest + margin
}

// lifetime is how long a run takes.
func (l *Load) lifetime() time.Duration {
	return time.Duration(l.Turns)*(l.ModelTime+l.CallTime) + l.ModelTime
}

// lasting is what there is in the end of what comes so often and is kept so long.
func lasting(perSecond float64, kept time.Duration) float64 { return perSecond * kept.Seconds() }

func (l *Load) streams() []Stream {
	cost := Run(l.Turns, l.TurnBytes/3, l.Redis)
	kept := map[string]time.Duration{
		Start: l.Deadline + margin, Out: l.Deadline + margin, Done: l.Deadline + margin, In: l.AnswersAge, Timers: fired, Runs: l.History,
	}
	if l.CallsKept > 0 {
		kept[Out] = l.lifetime() + l.CallsKept
		kept[Timers] = kept[Out]
	}
	var all []Stream
	for _, name := range []string{Start, In, Out, Done, Timers, Runs} {
		c := cost[name]
		if c.Writes == 0 {
			continue
		}
		s := Stream{
			Name: name, Partitions: 1, MessagesPerSecond: l.RunsPerSecond * c.Writes, BytesPerSecond: l.RunsPerSecond * c.Bytes, Kept: kept[name],
			Messages: lasting(l.RunsPerSecond*c.Messages, kept[name]), Subjects: lasting(l.RunsPerSecond*c.Subjects, kept[name]),
			Bytes: lasting(l.RunsPerSecond*c.Bytes, kept[name]),
		}
		if name != Start && name != Done { // which have one message of each run
			s.Partitions = l.Partitions
		}
		if name == Runs {
			left := lasting(l.RunsPerSecond, l.tombstones())
			s.Messages, s.Subjects, s.Bytes = s.Messages+left, s.Subjects+left, s.Bytes+left*tombstoneBytes
		}
		all = append(all, s)
	}
	return all
}

// Limit is something that a load uses up.
type Limit struct {
	What string `json:"what"`
	// Used and Has are in the same unit; At is how many runs per second would use all of it.
	Used float64 `json:"used"`
	Has  float64 `json:"has"`
	At   float64 `json:"at_runs_per_second"`
}

// Needs is what a load needs.
type Needs struct {
	Load    Load     `json:"load"`
	Streams []Stream `json:"streams"`
	// ServerMemory and ServerDisk are of each NATS server, ServerSubjects of each too, in the end.
	ServerMemory   float64 `json:"server_memory"`
	ServerDisk     float64 `json:"server_disk"`
	ServerSubjects float64 `json:"server_subjects"`
	// Syncs are writes per second of each server that must be on its disk before they are confirmed.
	Syncs float64 `json:"syncs_per_second"`
	// RedisMemory is 0 without it.
	RedisMemory float64 `json:"redis_memory"`
	// Waiting runs wait for a service or a person, Driven ones are in a worker's hands.
	Waiting float64 `json:"waiting"`
	Driven  float64 `json:"driven"`
	Workers int     `json:"workers"`
	// CPU is how many cores are busy with all of it.
	CPU float64 `json:"cores"`
	// Limits, the first one first.
	Limits []Limit `json:"limits"`
}

// The limits, by name.
const (
	LimitMemory = "memory of each NATS server"
	LimitRedis  = "memory of Redis"
	LimitWrites = "writes to the busiest stream"
)

// Plan is what a load needs when it has gone on for as long as anything is kept.
func Plan(l Load) Needs {
	n := Needs{Load: l, Streams: l.streams()}
	share := float64(l.Replicas) / float64(l.Servers)
	busiest := 0.0
	for _, s := range n.Streams {
		n.ServerSubjects += share * s.Subjects
		n.ServerDisk += share * s.Bytes
		if l.Servers > 1 || !slices.Contains(asynchronous, s.Name) {
			n.Syncs += share * s.MessagesPerSecond
		}
		busiest = max(busiest, s.MessagesPerSecond/float64(s.Partitions))
	}
	n.ServerMemory = serverBytes + subjectBytes*n.ServerSubjects
	if l.Redis {
		n.RedisMemory = lasting(l.RunsPerSecond, l.History)*Journal(l.Turns, l.TurnBytes/3) +
			lasting(l.RunsPerSecond, l.tombstones())*redisTombstoneBytes
	}
	n.Waiting = lasting(l.RunsPerSecond*float64(l.Turns), l.CallTime)
	n.Driven = lasting(l.RunsPerSecond*float64(l.Turns+1), l.ModelTime)
	n.CPU = l.RunsPerSecond * (fixedCPU + turnCPU*float64(l.Turns)) / 1000
	// One worker more than the work takes: any one may be away.
	n.Workers = 1 + int(math.Ceil(max(n.Driven/float64(l.Slots), n.CPU/float64(l.Cores))/busy))
	writes := float64(singleWrites)
	if l.Replicas > 1 {
		writes = raftWrites
	}
	n.Limits = []Limit{
		limit(LimitMemory, n.ServerMemory-serverBytes, l.Memory-serverBytes, l.RunsPerSecond),
		limit(LimitWrites, busiest, writes, l.RunsPerSecond),
	}
	if l.Redis {
		n.Limits = append(n.Limits, limit(LimitRedis, n.RedisMemory, l.RedisMemory, l.RunsPerSecond))
	}
	slices.SortStableFunc(n.Limits, func(a, b Limit) int { return cmp.Compare(a.At, b.At) })
	return n
}

func limit(what string, used, has, rate float64) Limit {
	return Limit{what, used, has, rate * busy * has / used}
}

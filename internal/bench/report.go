package bench

import (
	"agentd/internal/broker/streams"
)

// Report is what was measured. Counts, bytes and allocations are of one run, on the average of those under load.
type Report struct {
	Setting Setting `json:"setting"`
	// Runs is how many were carried out under load, in Seconds.
	Runs          int     `json:"runs"`
	Seconds       float64 `json:"seconds"`
	RunsPerSecond float64 `json:"runs_per_second"`
	// Run is how long a run took under load, Alone with nothing else to do, and NextStep from an answer to the next step, under load.
	Run      Spread `json:"run_ms"`
	Alone    Spread `json:"run_alone_ms"`
	NextStep Spread `json:"next_step_ms"`

	// Messages are those that programs published to NATS, acknowledgements and requests included, and MessageBytes what was in them.
	Messages     Messages `json:"messages"`
	MessageBytes float64  `json:"message_bytes"`
	// Stored is how many messages streams took, Awaited how many of them were written before they were confirmed, and StoredBytes what streams keep
	// of them, by the stream without its root.
	Stored      float64           `json:"stored"`
	Awaited     float64           `json:"awaited"`
	StoredBytes float64           `json:"stored_bytes"`
	Streams     map[string]Stream `json:"streams"`
	// Redis is nil where JetStream is the store.
	Redis   *Redis  `json:"redis,omitempty"`
	Journal Journal `json:"journal"`
	// ProcessorMS is of this process, which has workers, service and clients, and the embedded server if there is one. Allocations are
	// objects on its heap.
	ProcessorMS float64 `json:"processor_ms"`
	Allocations float64 `json:"allocations"`
	// Busy is what part of the processors this process kept busy, and MachineBusy what part all programs of this machine did; 0 where
	// that is not known.
	Busy        float64 `json:"busy"`
	MachineBusy float64 `json:"machine_busy,omitempty"`

	Probe Probe `json:"probe"`
	// Limits are what keeps runs from being faster, the likeliest first.
	Limits []Limit `json:"limits"`
}

// Setting is what was measured on what.
type Setting struct {
	Server string `json:"nats_version"`
	// Embedded is the folder of the embedded server; empty is a server elsewhere.
	Embedded string `json:"embedded,omitempty"`
	// NATSSync is "always" where every write is on disk before it is confirmed, "later" where it is not, and "unknown".
	NATSSync string `json:"nats_sync"`
	// NATSProcessors is how many processors the server kept busy at the end of the load, as its monitoring port says, of NATSCores; 0 is not
	// known.
	NATSProcessors float64 `json:"nats_processors,omitempty"`
	NATSCores      int     `json:"nats_cores,omitempty"`
	Store          string  `json:"store"`
	// RedisSync is appendfsync, "none" without an append-only file, or empty where Redis is not the store or does not say.
	RedisSync      string  `json:"redis_sync,omitempty"`
	Turns          int     `json:"turns"`
	Clients        int     `json:"clients"`
	Workers        int     `json:"workers"`
	Slots          int     `json:"slots"`
	Replicas       int     `json:"replicas"`
	Partitions     int     `json:"partitions"`
	ModelLatencyMS float64 `json:"model_latency_ms"`
	Processors     int     `json:"processors"`
}

// Spread is of times in ms.
type Spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Messages are by who published them.
type Messages struct {
	All     float64 `json:"all"`
	Worker  float64 `json:"worker"`
	Service float64 `json:"service"`
	Client  float64 `json:"client"`
}

// Stream is what one stream takes of a run, and keeps.
type Stream struct {
	Stored float64 `json:"stored"`
	Bytes  float64 `json:"bytes"`
	// PersistMode is whether the server confirms what it has written, or before.
	PersistMode streams.PersistMode `json:"persist_mode"`
}

// Redis is what a run costs there. MemoryBytes is that of the keys.
type Redis struct {
	All         float64            `json:"all"`
	Commands    map[string]float64 `json:"commands"`
	MemoryBytes float64            `json:"memory_bytes"`
}

// Journal is that of a run, with its bytes before they are packed.
type Journal struct {
	Entries float64 `json:"entries"`
	Bytes   float64 `json:"bytes"`
}

// Probe is what the servers take for one thing, measured before the load.
type Probe struct {
	RoundTripMS float64 `json:"round_trip_ms"`
	// WriteMS is one message that a stream stores, and WritesPerSecond how many it does with as many writers at once as there are clients.
	WriteMS          float64 `json:"write_ms"`
	WritesPerSecond  float64 `json:"writes_per_second"`
	RedisRoundTripMS float64 `json:"redis_round_trip_ms,omitempty"`
}

// Limit is what keeps runs from being faster, and what to do about it.
type Limit struct {
	What string `json:"what"`
	// Used is what part of it is used, from 0 to 1.
	Used   float64 `json:"used"`
	Advice string  `json:"advice"`
}

package capacity

// What was measured, each with where. Counts and sizes are of the running system: test/counts holds them to what it counts and
// weighs (TestCapacity_IsWhatRunsCost). Times and memory are of one machine (4 cores at 2 GHz of which 2 were used, a local disk, November
// 2026, nats-server 2.15.2), by go run ./test/bench: read them as orders of magnitude, and measure your own.

// What a run writes to each stream: messages, and bytes as the server counts them, that is with subjects, headers and its own marks.
const (
	initBytes     = 480 // an init event with a message of a few words
	terminalBytes = 693 // a terminal event with an answer of a few words
	firedBytes    = 227 // a fired timer. It takes the place of the one that was armed
	timerWrites   = 2   // one is armed for what a run waits for first, and fires
	// Of each call and answer, beside the argument and the result.
	callBytes, answerBytes = 1022, 778
	// Entries of a journal: two and their bytes for the beginning and the end, and two a turn, beside what a turn says.
	fixedEntries, turnEntries = 2, 2
	fixedBytes, turnBytes     = 2150, 2740
	// What is left of a journal when its history was removed.
	tombstoneBytes = 960
)

// Redis keeps the same entries in a list, and the head: bytes of its memory, by MEMORY USAGE.
const (
	redisFixedBytes, redisTurnBytes = 1900, 2700
	// Its allocator rounds up.
	redisRounds         = 1.08
	redisTombstoneBytes = 1175
)

// A NATS server keeps every subject in memory that has a message: go run ./test/bench -memory, with 30,000 to 90,000 answers,
// printed 310 to 330 of live memory; the rest is what waits to be collected.
const (
	subjectBytes = 400
	serverBytes  = 60 << 20 // a server that has just started
)

// What one stream takes, in messages a second.
const (
	// One server that syncs every write, on a disk that does so in 0.28 ms. With a busy disk, go run ./test/bench -memory printed 1,000 to 1,500.
	singleWrites = 6600
	// A raft group of three servers, messages of 1 KiB, all servers on two cores.
	raftWrites = 7400
)

// Processor time of a run in ms, all programs together: go run ./test/bench printed 10.2, 48 and 246 for 3, 20 and 100 turns.
const (
	fixedCPU, turnCPU = 3.0, 2.4
)

// busy is how much of a worker's slots, and of anything else, a plan uses: the rest is for bursts, and for the runs of a worker that died.
const busy = 0.7

package sdk

import "time"

// Defaults of what workers do beside serving (docs/reliability.md).
const (
	// DefaultReconcile is how often one of the workers looks for runs that were lost.
	DefaultReconcile = time.Hour
	// DefaultReconcileFull is how often these look at all runs, and not at those alone that have changed.
	DefaultReconcileFull = 24 * time.Hour
	// DefaultLostAfter is how old something must be before it counts as lost: far more than a worker takes from one step to
	// the next, and than a message takes from one worker to another.
	DefaultLostAfter = 15 * time.Minute
	// DefaultSlots is how many messages a worker handles at once: each may hold a whole conversation in memory.
	DefaultSlots = 128
	// DefaultHistory is how long a finished run keeps its history.
	DefaultHistory = 30 * 24 * time.Hour
	// DefaultCallsKept is how long the broker keeps the calls of a run that has ended: far longer than what is still on its way then takes.
	DefaultCallsKept = 10 * time.Minute
	// LeastCallsKept is the least that it may be: a message that is delivered again until then may give up a call that is still being made.
	LeastCallsKept = 2 * time.Minute
	// LeastHot is the least time for which the journal of a run that has ended stays in Redis: longer than anything reads what was written
	// lately, such as refilling streams.
	LeastHot = 3 * time.Hour
	// DefaultReplicaTimeout is how long replicas of Redis have for what is written of a run, where they are waited for.
	DefaultReplicaTimeout = time.Second
	// DefaultAnswersAge is how long the broker keeps answers, and messages to runs.
	DefaultAnswersAge = 7 * 24 * time.Hour
)

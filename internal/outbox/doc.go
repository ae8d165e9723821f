// Package outbox says what the journal of a run means outside: which events an entry publishes, on which subjects, with
// which bytes. An entry is the outbox of its run: whoever carries out its effects, and however often, publishes the same.
// So everything here is a function of its arguments, and of nothing else: no I/O, no clock, no randomness, no goroutine.
//
//	Calls     an attempt at a call: one event for each of its domains
//	Voids     their counterparts, when nobody waits for the call any more
//	Void      the same counterpart, made from the event of the call alone
//	Answer    the answer to an agent that the run has called and that has asked it something
//	Terminal  the end of a run
//	Refusal   the end of an init event that starts no run
//	Withdrawn the end of a call whose contract was removed
//
// docs/wire.md specifies the events.
package outbox

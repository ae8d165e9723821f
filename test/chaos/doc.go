// Command chaos runs agents on real processes and hurts them: workers, the NATS server and the Redis server are killed
// (SIGKILL), stopped for longer than their leases (SIGSTOP) and started again, TCP connections are cut, slow or silent, and
// answers, timers and init events arrive twice, early, late or broken. Clocks of workers are hours off, and every now and then workers begin to
// seal what they store with another key. Of the webhooks that are told what people are asked all but one are away. With -set-back the NATS
// server comes back to older files of those streams that journals bring back. With -cluster 3 leaders are killed, frozen, cut off and lose their
// disks, a client subscribes to everything and reads nothing, and in programs that were built for it (test/movableclock) the clock of a leader
// jumps. When the faults stop and everything has come to rest, internal/audit
// reads the streams and the journals and evaluates the invariants of the protocol.
//
// The driver, this process, has the model, the services, the clients and the faults. It starts itself again as each worker
// and as the NATS server: see roles. A worker is the very code of internal/worker; what is wrapped are its ports, and at a
// named failpoint of a port the process ends or stops itself. The code that is tested has none.
//
// A seed fixes which faults are chosen, not how the processes interleave: a failure is found again by its evidence, which
// is kept, and not by its seed alone.
package main

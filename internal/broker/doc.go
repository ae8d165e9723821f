// Package broker is agentd on NATS JetStream: streams and their provisioning, consumers, publishing with create-if-absent, timers and live
// events. It moves messages and knows nothing of runs.
//
// Connect connects to a server, which may be in this process (package embedded) and be found by its data folder (package datafolder). On the
// Conn, Provision makes streams and consumers by a Plan, and Verify, CheckServers, CheckAccounts and CheckSync only look, as CheckFolder does
// at a data folder; Publish, Restore, ArmTimer, DeadLetter, Start, Control and Live send; Consume, Watch, WaitDone, WatchLive and Tail
// receive; Serve and Ask are queries. All methods of Conn are safe for concurrent use.
package broker

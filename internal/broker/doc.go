// Package broker is agentd on NATS JetStream: consumers, publishing with create-if-absent, timers and live events, on the streams that package
// streams names and package provision makes. It moves messages and knows nothing of runs.
//
// Connect connects to a server, which may be in this process (package embedded) and be found by its data folder (package datafolder). On the
// Conn, Publish, Restore, ArmTimer, DeadLetter, Start, Control and Live send; Consume, Watch, WaitDone, WatchLive and Tail receive; Serve and
// Ask are queries. All methods of Conn are safe for concurrent use.
package broker

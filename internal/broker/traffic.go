package broker

import "time"

// Traffic is what a connection has sent and got since it was made, in messages and in bytes of what they carry: events, acknowledgements,
// and requests with their answers.
type Traffic struct{ Sent, SentBytes, Received, ReceivedBytes uint64 }

// Traffic counts messages of the connection's programs, and nobody else's.
func (c *Conn) Traffic() Traffic {
	s := c.nc.Stats()
	return Traffic{s.OutMsgs, s.OutBytes, s.InMsgs, s.InBytes}
}

// RoundTrip is how long the server takes to answer when it has nothing to do for that.
func (c *Conn) RoundTrip() (time.Duration, error) { return c.nc.RTT() }

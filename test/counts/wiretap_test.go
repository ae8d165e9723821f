package counts

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"

	"agentd/internal/broker"
)

// tap counts what programs publish, by reading what they write to their connections: PUB and HPUB of the client protocol.
type tap struct {
	server broker.InProcess
	mu     sync.Mutex
	counts map[string]int
}

// InProcessConn implements broker.InProcess.
func (w *tap) InProcessConn() (net.Conn, error) {
	conn, err := w.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: conn, tap: w}, nil
}

// reset forgets what was counted, and returns it.
func (w *tap) reset() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counted := w.counts
	w.counts = map[string]int{}
	return counted
}

// tapped is a connection of a program.
type tapped struct {
	net.Conn
	tap *tap
	// line is the beginning of a line whose end was not written yet; payload is how many bytes of a message are still to come.
	line    []byte
	payload int
}

func (c *tapped) Write(data []byte) (int, error) {
	c.read(data) // before it is sent: what is answered has been counted
	return c.Conn.Write(data)
}

func (c *tapped) read(data []byte) {
	for len(data) > 0 {
		if c.payload > 0 {
			skip := min(c.payload, len(data))
			c.payload, data = c.payload-skip, data[skip:]
			continue
		}
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			c.line = append(c.line, data...)
			return
		}
		fields := strings.Fields(string(append(c.line, data[:end]...)))
		c.line, data = nil, data[end+1:]
		if len(fields) < 3 || fields[0] != "PUB" && fields[0] != "HPUB" {
			continue
		}
		if _, err := fmt.Sscan(fields[len(fields)-1], &c.payload); err != nil {
			panic(fmt.Sprintf("%v is not of the client protocol", fields))
		}
		c.payload += len("\r\n")
		c.tap.mu.Lock()
		c.tap.counts[family(fields[1])]++
		c.tap.mu.Unlock()
	}
}

// family is what a message is about: the kind of an agentd subject, an acknowledgement, or the request of the server's API.
func family(subject string) string {
	tokens := strings.Split(subject, ".")
	switch {
	case strings.HasPrefix(subject, "$JS.ACK."):
		return "ack"
	case strings.HasPrefix(subject, "$JS.API.CONSUMER.MSG.NEXT."):
		return "pull"
	case strings.HasPrefix(subject, "$JS.API.") && len(tokens) > 3:
		return "api " + tokens[2] + "." + tokens[3]
	case tokens[0] == "agentd":
		return tokens[1]
	}
	return tokens[0]
}

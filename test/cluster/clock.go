package cluster

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"time"
)

// setClock has the clock of this process be ahead of the machine's. It is nil where the program was not built for that: see
// test/movableclock.
var setClock func(ahead time.Duration)

// ClocksMove reports whether servers of this program can set their clocks.
func ClocksMove() bool { return setClock != nil }

// SetClock has the server's clock jump to so much, in whole seconds, ahead of the machine's, or behind it. A server that begins anew has the
// machine's time. It is for programs whose ClocksMove.
func (n *Node) SetClock(ahead time.Duration) error {
	if _, err := fmt.Fprintln(n.input, ahead); err != nil {
		return fmt.Errorf("set the clock of server %s: %w", n.Name, err)
	}
	return nil
}

// obey sets the clock as whoever started the server says, until they are gone.
func obey(from io.Reader) error {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		ahead, err := time.ParseDuration(lines.Text())
		if err != nil {
			return err
		}
		if setClock == nil {
			return fmt.Errorf("told to be %s ahead, but the clock cannot be moved", ahead)
		}
		setClock(ahead)
		fmt.Fprintf(os.Stderr, "the clock is %s ahead\n", ahead)
	}
	return lines.Err()
}

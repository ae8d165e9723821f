package gather

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// waitUntilWritten waits until nobody writes.
func (g *gathered) waitUntilWritten() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.writing {
		g.changed.Wait()
	}
}

// slowConn is a connection whose writes last until they are read from writes.
type slowConn struct {
	net.Conn
	writes chan string
}

func (c slowConn) Write(p []byte) (int, error) {
	c.writes <- string(p)
	return len(p), nil
}

// slowly gathers what is written to a connection that is writing "a". What it writes it has written when that is read.
func slowly(t *testing.T) (g *gathered, writes <-chan string) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	slow := slowConn{near, make(chan string)}
	g = gather(slow)
	writeAll(t, g, "a")
	synctest.Wait() // it is being written
	return g, slow.writes
}

func writeAll(t *testing.T, w io.Writer, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", p, n, err)
		}
	}
}

// What is written while an earlier write is under way is one write.
func TestGather_WritesTogetherWhatHasComeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, writes := slowly(t)
		writeAll(t, g, "b", "c", "d")
		for _, want := range []string{"a", "bcd"} {
			if got := <-writes; got != want {
				t.Errorf("wrote %q, want %q", got, want)
			}
		}
		writeAll(t, g, "e")
		synctest.Wait()
		go g.Close()
		if got := <-writes; got != "e" {
			t.Errorf("wrote %q, want %q", got, "e")
		}
	})
}

// Whoever writes, and however much at once: each write is whole, and they are in order.
func TestGather_KeepsOrder(t *testing.T) {
	near, far := net.Pipe()
	g := gather(near)
	const writers, each = 4, 200
	line := func(w, i int) string { return fmt.Sprintf("%d %d %s\n", w, i, strings.Repeat("x", i*i/16)) }
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				writeAll(t, g, line(w, i))
			}
		})
	}
	go func() {
		writing.Wait()
		g.Close()
	}()
	all, err := io.ReadAll(far)
	if err != nil {
		t.Fatal(err)
	}
	var next [writers]int
	for got := range strings.Lines(string(all)) {
		w := int(got[0] - '0')
		if want := line(w, next[w]); got != want {
			t.Fatalf("writer %d: %.20q of %d bytes, want %.20q of %d", w, got, len(got), want, len(want))
		}
		next[w]++
	}
	for w, n := range next {
		if n != each {
			t.Errorf("writer %d: %d writes arrived, want %d", w, n, each)
		}
	}
}

// What waits is bounded: who writes more waits for room.
func TestGather_WaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, writes := slowly(t)
		writeAll(t, g, strings.Repeat("b", mostGathered))
		took := make(chan struct{})
		go func() {
			defer close(took)
			writeAll(t, g, "c")
		}()
		synctest.Wait()
		select {
		case <-took:
			t.Error("it has taken more than there is room for")
		default:
		}
		<-writes
		<-took
		if got := len(<-writes); got != mostGathered {
			t.Errorf("wrote %d bytes, want %d", got, mostGathered)
		}
		if got := <-writes; got != "c" {
			t.Errorf("wrote %q, want %q", got, "c")
		}
		g.Close()
	})
}

// brokenConn is a connection whose writes fail.
type brokenConn struct{ net.Conn }

var errBroken = errors.New("it is broken")

func (brokenConn) Write([]byte) (int, error) { return 0, errBroken }

// A write that fails is told to who writes next, and to who reads, which would see only that the connection was closed.
func TestGather_TellsWhyItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		g := gather(brokenConn{near})
		writeAll(t, g, "a")
		if _, err := g.Read(make([]byte, 1)); !errors.Is(err, errBroken) {
			t.Errorf("Read = %v, want %v", err, errBroken)
		}
		if _, err := g.Write([]byte("b")); !errors.Is(err, errBroken) {
			t.Errorf("Write = %v, want %v", err, errBroken)
		}
		g.Close()
		if _, err := g.Read(make([]byte, 1)); err == nil || errors.Is(err, errBroken) {
			t.Errorf("Read = %v once it is closed, want that it is", err)
		}
	})
}

// A connection that is forgotten leaves nothing behind: the client forgets those on which it was refused.
func TestGather_HasNoGoroutineWhileItHasNothingToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		g := gather(near)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		writeAll(t, g, "a", "b")
		g.waitUntilWritten()
		far.Close()
	}) // which waits for the goroutines of the test
}

// Who may wait for room for a while only, such as TLS which says goodbye, waits no longer, and has nothing written.
func TestGather_WaitsForRoomUntilADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		g, start := gather(near), time.Now()
		writeAll(t, g, "a")
		synctest.Wait()
		writeAll(t, g, strings.Repeat("b", mostGathered))
		if err := g.SetWriteDeadline(start.Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := g.Write([]byte("c")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write = %d, %v, want %v", n, err, os.ErrDeadlineExceeded)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("it has waited for %s", took)
		}
		if _, err := g.Write(nil); err != nil {
			t.Errorf("to write nothing takes room: %v", err)
		}
		g.Close()
	})
}

// A server that reads nothing fails a write after the time that the client gives it, and holds up nobody who closes the connection.
func TestGather_GivesUpWhereNothingIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		close bool
		want  time.Duration
	}{"open": {false, nats.DefaultFlusherTimeout}, "closed": {true, closeWithin}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				g, start := gather(near), time.Now()
				writeAll(t, g, "a")
				synctest.Wait()
				if test.close {
					g.Close()
				}
				g.waitUntilWritten()
				if took := time.Since(start); took != test.want {
					t.Errorf("it gave up after %s, want %s", took, test.want)
				}
				if _, err := g.Write([]byte("b")); err == nil {
					t.Error("it takes more")
				}
				g.Close()
			})
		})
	}
}

// What was written before the connection is closed arrives.
func TestGather_WritesBeforeItCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		g := gather(near)
		read := make(chan string)
		go func() {
			all, _ := io.ReadAll(far)
			read <- string(all)
		}()
		writeAll(t, g, "a", "b")
		g.Close()
		if got := <-read; got != "ab" {
			t.Errorf("%q has arrived, want %q", got, "ab")
		}
		if _, err := g.Write([]byte("c")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write = %v, want %v", err, net.ErrClosed)
		}
	})
}

package browser

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"agentd/test/ports"
)

// away is how long the broker is away for longer than it takes the page to say so.
var away = flag.Duration("browser.away", 0, "how long the broker is away after the page has said so")

// A page says that the broker is not there, and goes on by itself when it is back.
func TestAway_ThePageSaysSoAndGoesOn(t *testing.T) {
	t.Parallel()
	w, server, list := listed(t)
	list.expects("503")
	request := newTab(t, list.address)
	request.open("/inbox")
	request.click("table a")
	server.stop(syscall.SIGKILL)
	for _, b := range []*tab{list, request} {
		b.shows("The broker is not there.")
	}
	request.shows("Exactly these arguments") // what was there stays
	<-time.After(*away)
	// A page that needs the broker is an error, and never one without results.
	other := newTab(t, list.address)
	other.expects("503")
	if status := other.open("/runs/lisbon"); status != 503 {
		t.Errorf("a page that cannot be read comes with the status %d", status)
	}
	other.shows("The broker is not there.")
	w.server()
	for _, b := range []*tab{list, request} {
		b.shows("The broker is back.")
		b.lacks("The broker is not there.")
	}
	w.agentd("runs", "cancel", "lisbon", "--reason", "too late")
	list.shows("done: cancelled")
	w.run("porto", "A night in Porto", "--detach")
	list.shows("1 run new or changed")
}

// A console that ends and starts again is noticed, too.
func TestAway_TheConsoleThatDoesNotAnswerIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.served()
	listen := "127.0.0.1:" + strconv.Itoa(ports.Free(t))
	first := w.startConsole("--as", "anna", "--http", listen)
	b := newTab(t, first.address())
	b.expects("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "htmx:sendError", "htmx:afterRequest", "[object Event]")
	b.open("/runs")
	b.shows("There are no runs yet")
	first.stop(syscall.SIGTERM)
	b.shows("The console does not answer.")
	w.startConsole("--as", "anna", "--http", listen)
	b.lacks("The console does not answer.")
}

// The index may be deleted at any time: it is made anew, and pages go on.
func TestIndex_DeletedWhileRunning(t *testing.T) {
	t.Parallel()
	w, _, b := listed(t)
	files, err := filepath.Glob(filepath.Join(w.index, "index.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the index is in %q, %v", files, err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
	w.run("porto", "A night in Porto", "--detach")
	b.shows("new or changed")
	await(t, "the index is made anew", func() bool {
		_, err := os.Stat(files[0])
		return err == nil
	})
	w.agentd("runs", "cancel", "lisbon")
	b.shows("done: cancelled")
	b.comesTo("/runs", "porto")
	b.shows("lisbon")
}

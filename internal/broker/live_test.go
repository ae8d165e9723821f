package broker

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"agentd/internal/broker/embedded"
	"agentd/sdk/wire"
	"agentd/test/natsserver"
	"agentd/test/ports"
)

// hear collects announcements as they are read.
func hear(t *testing.T, c *Conn) (heard chan string, unread func() bool) {
	t.Helper()
	heard = make(chan string, 100)
	unread, stop, err := c.OnWatch(func(agent string, run wire.RunKey) { heard <- agent + " " + run.String() }, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return heard, unread
}

// announce announces on a subject until the test ends.
func announce(t *testing.T, c *Conn, every time.Duration, subject string, missed func()) {
	t.Helper()
	stop, err := c.announceEach(every, subject, missed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWatch_WhoWatchesIsToldThatTheConnectionIsClosed(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	missed := make(chan string, 1)
	announce(t, c, time.Hour, c.subjects.Watch("travel.desk", testRun), func() { missed <- "something may have been missed" })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	receive(t, "that the connection is closed", missed)
}

func TestWatch_IsAnnouncedAndRenewed(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	heard, _ := hear(t, c)
	var missed atomic.Int64
	announce(t, c, time.Millisecond, c.subjects.Watch("travel.desk", testRun), func() { missed.Add(1) })
	want := "travel_desk " + testRun.String()
	for range 5 {
		if got := receive(t, "an announcement", heard); got != want {
			t.Fatalf("announced %q, want %q", got, want)
		}
	}
	if n := missed.Load(); n != 1 { // what was before the first renewal
		t.Errorf("%d times something may have been missed, want 1", n)
	}
}

func TestWatch_OfAgentsAndOfAll(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	heard, _ := hear(t, c)
	announce(t, c, time.Hour, c.subjects.Watch("travel.desk", wire.RunKey{}), func() {})
	announce(t, c, time.Hour, c.subjects.Watch("", wire.RunKey{}), func() {})
	for _, want := range []string{"travel_desk .", " ."} {
		if got := receive(t, "an announcement", heard); got != want {
			t.Errorf("announced %q, want %q", got, want)
		}
	}
}

// Who asks hears who watches, and who is asked looks for what was told before.
func TestWatch_IsAskedFor(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	if err := c.AskWatchers(testContext(t)); err != nil { // nobody: it does not take the time that watchers have
		t.Fatal(err)
	}
	missed := make(chan struct{}, 10)
	announce(t, c, time.Hour, c.subjects.Watch("travel.desk", testRun), func() { missed <- struct{}{} })
	heard, _ := hear(t, c) // later than the announcement
	if err := c.AskWatchers(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got, want := receive(t, "the answer", heard), "travel_desk "+testRun.String(); got != want {
		t.Errorf("announced %q, want %q", got, want)
	}
	receive(t, "that something may have been missed", missed)
}

func TestWatch_IsAnnouncedAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	o := embedded.Options{Dir: shortDir(t), Listen: true, Port: ports.Free(t), PortOnly: true}
	s := startServer(t, o)
	c := connect(t, ConnectOptions{URL: s.URL()})
	missed := make(chan struct{}, 10)
	announce(t, c, time.Hour, c.subjects.Watch("travel.desk", testRun), func() { missed <- struct{}{} })
	heard, _ := hear(t, c)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	startServer(t, o)
	receive(t, "the announcement after the outage", heard)
	receive(t, "that something may have been missed", missed)
}

// Who may not announce that they watch is told all the same when the connection was lost, and when it is closed.
func TestWatch_WhoMayNotAnnounceIsToldOfTheConnection(t *testing.T) {
	t.Parallel()
	ns := natsserver.Start(t, server.Options{Port: server.RANDOM_PORT, Users: []*server.User{{
		Username: "ann", Password: "cold", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"agentd.watch.>"}}},
	}}})
	c := connect(t, ConnectOptions{URL: "nats://ann:cold@" + ns.Addr().String()})
	subject := c.subjects.Watch("travel.desk", testRun)
	refused, _, forget := c.refusals.until(testContext(t), subject)
	defer forget()
	missed := make(chan struct{}, 10)
	announce(t, c, time.Hour, subject, func() { missed <- struct{}{} })
	receive(t, "that the announcement is refused", refused.Done())
	if err := c.nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	receive(t, "that something may have been missed", missed)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	receive(t, "that the connection is closed", missed)
}

// What was announced before anything else that the connection reads is known by then: as read, or as unread.
func TestWatch_UnreadAnnouncementsAreKnown(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	reading, read := make(chan struct{}), make(chan struct{})
	unread, stop, err := c.OnWatch(func(string, wire.RunKey) {
		reading <- struct{}{}
		<-read
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if unread() {
		t.Error("something is unread before anything was announced")
	}
	announce(t, c, time.Hour, c.subjects.Watch("travel.desk", testRun), func() {})
	<-reading
	if !unread() {
		t.Error("an announcement that is being read counts as read")
	}
	close(read)
	eventually(t, "it is read", func() bool { return !unread() })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// More announcements than can be read are dropped, and that is told: they take no more memory than mostUnread.
func TestWatch_DroppedAnnouncementsAreKnown(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	first, read := make(chan struct{}), make(chan struct{})
	lost := make(chan struct{}, 10)
	var once atomic.Bool
	unread, stop, err := c.OnWatch(func(string, wire.RunKey) {
		if once.CompareAndSwap(false, true) {
			close(first)
		}
		<-read
	}, func() { lost <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * mostUnread {
		if err := c.nc.Publish(c.subjects.Watch("travel.desk", testRun), nil); err != nil {
			t.Fatal(err)
		}
	}
	<-first
	if err := c.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	close(read)
	receive(t, "that announcements were dropped", lost)
	eventually(t, "all others are read", func() bool { return !unread() })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestWatch_SubjectsAreThoseOfTheWire(t *testing.T) {
	t.Parallel()
	s := wire.DefaultSubjects()
	got := []string{
		s.Watch("travel.desk", testRun), s.Watch("travel.desk", wire.RunKey{}), s.Watch("", wire.RunKey{}), s.Watches(), s.WatchAsk(),
		s.LiveFilter("travel.desk", wire.RunKey{}), s.LiveFilter("", wire.RunKey{}),
	}
	want := []string{
		"agentd.watch.travel_desk." + testRun.String(), "agentd.watch.travel_desk.all.all", "agentd.watch.all.all.all",
		"agentd.watch.*.*.*", "agentd.watch.ask", "agentd.stream.travel_desk.>", "agentd.stream.>",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

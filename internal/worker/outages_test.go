package worker

import (
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

const outageKey = "gpt"

// someWorkers are the connections of workers of one server, and what each knows of models that are away.
func someWorkers(t *testing.T, n int) ([]*broker.Conn, []*outages) {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	conns, known := make([]*broker.Conn, n), make([]*outages, n)
	for i := range n {
		conn, err := broker.Connect(t.Context(), broker.ConnectOptions{InProcess: server, Subjects: wire.DefaultSubjects()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conns[i], known[i] = conn, newOutages(conn, slog.New(slog.DiscardHandler))
	}
	if _, err := provision.Apply(t.Context(), conns[0], provision.Plan{Agents: []provision.Agent{{Name: "desk", Type: "desk"}}}); err != nil {
		t.Fatal(err)
	}
	return conns, known
}

// runsWait marks runs as waiting for the model.
func runsWait(t *testing.T, conn *broker.Conn, n int) {
	t.Helper()
	for i := range n {
		if err := conn.MarkParked(t.Context(), outageKey, "desk", wire.NewRunKey(strconv.Itoa(i)), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
}

// left waits until at most so many runs are marked.
func left(t *testing.T, conn *broker.Conn, most int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		runs, err := conn.ParkedRuns(t.Context(), outageKey, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(runs) <= most {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d runs are marked after a minute, want %d at most", len(runs), most)
		}
	}
}

func listen(t *testing.T, o *outages) (stop func()) {
	t.Helper()
	stop, err := o.listen(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

// A worker that dies while it unparks runs leaves the others to those that heard that the model answers.
func TestOutages_AnotherWorkerGoesOnUnparking(t *testing.T) {
	t.Parallel()
	const many = 60
	conns, known := someWorkers(t, 2)
	runsWait(t, conns[0], many)
	stop := listen(t, known[0])
	known[0].Back(outageKey, true)
	left(t, conns[1], many-1)
	defer listen(t, known[1])()
	known[1].heard(outageKey, 0)
	stop()
	left(t, conns[1], 0)
}

// Whoever knew that a model was away may be gone: a worker that was started since looks for runs that wait, when the model answers it
// for the first time.
func TestOutages_TheFirstReplyHasAWorkerLook(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 1)
	runsWait(t, conns[0], 3)
	defer listen(t, known[0])()
	known[0].Back(outageKey, false)
	left(t, conns[0], 0)
}

// sent are the runs that were to be tried, in order.
func sent(t *testing.T, conn *broker.Conn) []string {
	t.Helper()
	var runs []string
	if err := conn.Deliveries(t.Context(), streams.In, []string{conn.Subjects().All(wire.KindCtl)}, func(d broker.Delivery) bool {
		address, err := conn.Subjects().Parse(d.Subject())
		if err != nil || address.Verb != wire.ControlUnpark {
			t.Errorf("%s was sent: %v", d.Subject(), err)
		}
		runs = append(runs, address.Run.Token)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return runs
}

// Where all runs of a model wait, the one that was parked first is sent to ask it when the time is over in which nobody is to, and others
// after it.
func TestOutages_RunsThatWaitAreSentToAsk(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 2)
	runsWait(t, conns[0], 3)
	defer listen(t, known[0])()
	defer listen(t, known[1])()
	if err := conns[0].TellOutage(t.Context(), outageKey, firstProbe); err != nil {
		t.Fatal(err)
	}
	left(t, conns[0], 0)
	var want []string
	for i := range 3 {
		want = append(want, wire.NewRunKey(strconv.Itoa(i)).Token)
	}
	if diff := cmp.Diff(want, slices.Compact(sent(t, conns[0]))); diff != "" { // a mark that is taken away is there for a second more
		t.Errorf("runs that were sent (-want +got):\n%s", diff)
	}
}

// Of workers that know of runs that wait, one sends a run in a time.
func TestOutages_OneWorkerSends(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 2)
	runsWait(t, conns[0], 2)
	for i := range known {
		waits, sent, err := known[i].send(t.Context(), outageKey, time.Minute)
		if err != nil || !waits || sent != (i == 0) {
			t.Errorf("worker %d finds runs that wait: %t, and sends one: %t, %v", i, waits, sent, err)
		}
	}
	if runs := sent(t, conns[0]); len(runs) != 1 || runs[0] != wire.NewRunKey("0").Token {
		t.Errorf("%q were sent, want the run that was parked first", runs)
	}
}

// None is sent while one is asking: it could not ask, and would be parked again.
func TestOutages_NobodyIsSentWhileOneAsks(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 1)
	runsWait(t, conns[0], 1)
	if mine, err := conns[0].AskAway(t.Context(), outageKey, probeTime); err != nil || !mine {
		t.Fatalf("the right to ask: %t, %v", mine, err)
	}
	if waits, sent, err := known[0].send(t.Context(), outageKey, time.Second); err != nil || !waits || sent {
		t.Errorf("a run waits: %t, and is sent: %t, %v", waits, sent, err)
	}
	if err := conns[0].TellOutage(t.Context(), outageKey, 0); err != nil { // who asked has its answer
		t.Fatal(err)
	}
	if waits, sent, err := known[0].send(t.Context(), outageKey, time.Second); err != nil || !waits || !sent {
		t.Errorf("a run waits: %t, and is sent: %t, %v", waits, sent, err)
	}
}

// None is sent while it holds that nobody is to ask, also where that was told after they began to wait.
func TestOutages_NobodyIsSentWhileNobodyIsToAsk(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 1)
	runsWait(t, conns[0], 1)
	defer listen(t, known[0])()
	began := time.Now()
	for _, d := range []time.Duration{firstProbe, 4 * time.Second} {
		known[0].heard(outageKey, d)
	}
	left(t, conns[0], 0)
	if waited := time.Since(began); waited < 4*time.Second {
		t.Errorf("a run was sent after %s, want 4 s at least", waited)
	}
}

// Whoever parks a run has it sent, though nobody else knows of an outage.
func TestPark_HasARunSent(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 1)
	defer listen(t, known[0])()
	if err := known[0].Park(t.Context(), outageKey, "desk", wire.NewRunKey("run"), time.Hour); err != nil {
		t.Fatal(err)
	}
	left(t, conns[0], 0)
	if runs := sent(t, conns[0]); len(runs) == 0 || runs[0] != wire.NewRunKey("run").Token {
		t.Errorf("%q were sent", runs)
	}
}

// A worker that starts finds out for how long nobody is to ask a model, and sends runs that wait for one of which nobody knows any more.
func TestOutages_AWorkerThatStartsLooks(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 1)
	runsWait(t, conns[0], 1)
	if err := conns[0].TellOutage(t.Context(), "other", time.Hour); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	stop, err := known[0].listen(t.Context(), []string{outageKey, "other"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	left(t, conns[0], 0)
	for deadline := began.Add(time.Minute); known[0].absence("other").until.Before(began.Add(58 * time.Minute)); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it may ask the other model %s after it began", known[0].absence("other").until.Sub(began))
		}
	}
}

// What was told of an outage before the model answered is no news of one.
func TestOutages_AnAnswerIsNewerThanWhatWasStored(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 1)
	if err := conns[0].TellOutage(t.Context(), outageKey, time.Hour); err != nil {
		t.Fatal(err)
	}
	known[0].heard(outageKey, 0)
	known[0].learn(t.Context(), []string{outageKey})
	if got := known[0].absence(outageKey); got != (absence{}) {
		t.Errorf("nobody is to ask until %s", got.until)
	}
}

// A long outage that is over does not keep runs from being sent in the next: whoever was to send none for minutes is not any more.
func TestOutages_AnAnswerHasRunsSentSoonInTheNextOutage(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 1)
	if mine, err := conns[0].Lease(t.Context(), scoutLease+outageKey, 5*time.Minute); err != nil || !mine {
		t.Fatalf("the right to send: %t, %v", mine, err)
	}
	defer listen(t, known[0])()
	known[0].Back(outageKey, true)
	for deadline := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
		mine, err := conns[0].Lease(t.Context(), scoutLease+outageKey, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if mine {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("none is sent for a minute after the model has answered")
		}
	}
}

// Each run that is sent in vain makes the next one later; an answer, and the beginning of another outage, have them sent soon again.
func TestSends_BecomeRare(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 11: 5 * time.Minute} {
		if got := sends.Nth(n); got != want {
			t.Errorf("after %d runs the next is sent after %s, want %s", n, got, want)
		}
	}
	s := &scouting{anew: make(chan struct{}, 1)}
	o := newOutages(nil, slog.New(slog.DiscardHandler))
	o.scouting[outageKey] = s
	over := func() { o.away[outageKey] = absence{until: time.Now().Add(-time.Second), lasts: time.Second} }
	for _, step := range []struct {
		name  string
		take  func()
		anew  bool
		pause time.Duration
	}{
		{"the model goes away", func() { o.Away(outageKey, 0) }, true, time.Second},
		{"another worker has asked it at the same time", func() { o.heard(outageKey, time.Minute) }, false, time.Second},
		{"it is asked again, in vain", func() { over(); o.Away(outageKey, 0) }, false, 2 * time.Second},
		{"others hear that", func() { o.heard(outageKey, 2*time.Second) }, false, 2 * time.Second},
		{"another worker asks it, in vain", func() { over(); o.heard(outageKey, 4*time.Second) }, false, 4 * time.Second},
		{"nobody sends runs any more, and then somebody does", func() { over(); delete(o.scouting, outageKey); o.scouting[outageKey] = s; o.Away(outageKey, 0) }, false, 8 * time.Second},
		{"it answers", func() { o.heard(outageKey, 0) }, true, time.Second},
		{"another worker misses it", func() { o.heard(outageKey, time.Minute) }, true, time.Second},
		{"so does this one", func() { o.Away(outageKey, 0) }, false, time.Second},
	} {
		step.take()
		if got := o.pause(outageKey); got != step.pause {
			t.Errorf("%s: the next run is sent after %s, want %s", step.name, got, step.pause)
		}
		select {
		case <-s.anew:
			if !step.anew {
				t.Errorf("%s: it begins anew", step.name)
			}
		default:
			if step.anew {
				t.Errorf("%s: it does not begin anew", step.name)
			}
		}
	}
	s.begin()
	if !s.rest(t.Context(), time.Hour) {
		t.Error("what is new does not end a rest")
	}
}

// That another run asks a model holds back those that wait for it, and no others.
func TestOutages_WhoDidNotWaitIsNotHeldBackByWhoAsks(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 2)
	if mine, err := conns[1].AskAway(t.Context(), outageKey, probeTime); err != nil || !mine {
		t.Fatalf("the right to ask: %t, %v", mine, err)
	}
	for _, want := range []struct{ waited, may bool }{{true, false}, {false, true}, {true, false}} {
		if may := known[0].Ask(t.Context(), outageKey, want.waited); may != want.may {
			t.Errorf("a run that waited: %t may ask: %t", want.waited, may)
		}
	}
}

// A model that was away for a moment is asked again after a second, and one that stays away less and less often. The provider may ask for
// more.
func TestAbsence_IsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_000_000, 0)
	var known absence
	for i, want := range []struct{ failed, after, until time.Duration }{
		{0, 0, time.Second},
		{500 * time.Millisecond, 0, time.Second}, // it was asked before it was known to be away
		{time.Second, 0, 3 * time.Second},
		{3 * time.Second, 0, 7 * time.Second},
		{8 * time.Second, 0, 16 * time.Second},
		{16 * time.Second, 0, 31 * time.Second},
		{31 * time.Second, 0, 46 * time.Second},
		{32 * time.Second, 20 * time.Second, 52 * time.Second},
		{60 * time.Second, 90 * time.Second, 150 * time.Second},
		{150 * time.Second, 0, 165 * time.Second},
	} {
		known = known.failed(began.Add(want.failed), want.after)
		if got := known.until.Sub(began); got != want.until {
			t.Errorf("%d: it is to be asked after %s, want %s", i, got, want.until)
		}
	}
}

// All workers ask a model as rarely as the one that asked it last.
func TestOutages_WorkersShareHowLongAModelIsAway(t *testing.T) {
	t.Parallel()
	_, known := someWorkers(t, 2)
	defer listen(t, known[1])()
	known[1].heard(outageKey, 4*time.Second)
	known[1].mu.Lock()
	known[1].away[outageKey] = absence{time.Now(), known[1].away[outageKey].lasts} // its time has passed
	known[1].mu.Unlock()
	known[1].Away(outageKey, 0)
	known[1].mu.Lock()
	defer known[1].mu.Unlock()
	if got := known[1].away[outageKey].lasts; got != 8*time.Second {
		t.Errorf("after another worker told of 4 s nobody asks for %s, want 8s", got)
	}
}

// Whoever is refused the right to ask a model tries to get it a second later: the one that has it may have used it.
func TestOutages_TheRightToAskIsAskedForAgain(t *testing.T) {
	t.Parallel()
	conns, known := someWorkers(t, 2)
	if mine, err := conns[1].AskAway(t.Context(), outageKey, probeTime); err != nil || !mine {
		t.Fatalf("the right to ask: %t, %v", mine, err)
	}
	began := time.Now()
	known[0].away[outageKey] = absence{began, firstProbe}
	if known[0].Ask(t.Context(), outageKey, true) {
		t.Error("two may ask at once")
	}
	until := known[0].away[outageKey].until
	if until.Before(began.Add(firstProbe)) || until.After(time.Now().Add(firstProbe)) {
		t.Errorf("it tries again after %s, want %s", until.Sub(began), firstProbe)
	}
}

func (o *outages) absence(key string) absence {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.away[key]
}

package worker

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
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
	if _, err := conns[0].Provision(t.Context(), broker.Plan{Agents: []broker.AgentPlan{{Name: "desk", Type: "desk"}}}); err != nil {
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
	stop, err := o.listen(t.Context())
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

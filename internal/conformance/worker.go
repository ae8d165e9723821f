package conformance

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"agentd/internal/broker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// desk is the agent that clients ask. Its token is not its name.
const desk = "travel.desk"

// page is how many milestones, and how many runs, an answer of the worker has.
const page = 2

// worker answers what clients ask about runs.
type worker struct {
	conn *broker.Conn
	mu   sync.Mutex
	// runs are by their subjects, names in the order in which lists have them. A name without a run is an empty page.
	runs  map[string]*wire.RunStatus
	names []string
	// missed are closed when somebody was told that such a run does not exist, by their subjects.
	missed map[string]chan struct{}
	// served is what ends answering; nil while nobody answers.
	served func() error
}

func work(conn *broker.Conn) (*worker, error) {
	w := &worker{conn: conn, runs: map[string]*wire.RunStatus{}, missed: map[string]chan struct{}{}}
	return w, w.serve()
}

func (w *worker) serve() error {
	var err error
	w.served, err = w.conn.Serve(broker.Service{
		Name: "conformance", Version: "1.0.0",
		Endpoints: []broker.Endpoint{{Subject: w.conn.Subjects().All(wire.KindGet), Name: "get", Answer: w.answer}},
	})
	return err
}

// stop ends answering.
func (w *worker) stop() error {
	if w.served == nil {
		return nil
	}
	served := w.served
	w.served = nil
	return served()
}

// put changes what is told of a run, which begins with it.
func (w *worker) put(name string, change func(*wire.RunStatus)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[name] == nil {
		w.runs[name] = &wire.RunStatus{Run: name, Agent: desk, Status: wire.StatusRunning}
		w.names = append(w.names, name)
	}
	change(w.runs[name])
}

// forget removes a run, which is in lists no more.
func (w *worker) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, name)
	w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
}

func (w *worker) answer(subject string, body []byte) (broker.Answer, error) {
	var query wire.Query
	if err := json.Unmarshal(body, &query); err != nil {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "the request cannot be read")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if query.Run == "" {
		return broker.JSON(w.list(query.List))
	}
	run := w.runs[query.Run]
	if run == nil {
		if missed := w.missed[query.Run]; missed != nil {
			close(missed)
			delete(w.missed, query.Run)
		}
		return nil, sdk.Errorf(sdk.CodeUnknownRun, "there is no run %q", query.Run)
	}
	if who := strings.TrimPrefix(subject[len(w.conn.Subjects().Get(desk)):], "."); who != "" && who != run.Initiator {
		return nil, sdk.Errorf(sdk.CodePermissionDenied, "%s may not see run %q: somebody else started it", who, query.Run)
	}
	told := *run
	told.Milestones = nil
	for _, l := range run.Milestones {
		if !query.After.Before(l) {
			continue
		}
		if told.More = len(told.Milestones) == page; told.More {
			break
		}
		told.Milestones = append(told.Milestones, l)
	}
	return broker.JSON(told)
}

// missing is closed when somebody has asked for a run that there is not yet.
func (w *worker) missing(name string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	missed := make(chan struct{})
	w.missed[name] = missed
	return missed
}

// list is a page of the runs with a status. The first page of all is empty.
func (w *worker) list(query *wire.ListQuery) wire.RunList {
	if query == nil || query.Cursor == "" {
		return wire.RunList{Runs: []wire.RunStatus{}, Next: "0"}
	}
	var matching []wire.RunStatus
	for _, name := range w.names {
		if run := w.runs[name]; query.Status == "" || query.Status == run.Status {
			matching = append(matching, wire.RunStatus{Run: run.Run, Agent: run.Agent, Status: run.Status})
		}
	}
	from := min(len(query.Cursor)-1, len(matching)) // a cursor is opaque: as many digits as runs that were told, and one
	to := min(from+page, len(matching))
	list := wire.RunList{Runs: matching[from:to]}
	if to < len(matching) {
		list.Next = strings.Repeat("0", to+1)
	}
	return list
}

// happen adds a milestone to a run, and tells it live as often as said.
func (w *worker) happen(l wire.Live, times int) {
	w.put(l.Run, func(run *wire.RunStatus) { run.Milestones = append(run.Milestones, l) })
	for range times {
		w.conn.Live(l)
	}
}

package browser

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/nats-io/nats.go"
)

// furnished is a world in which every page has something to show.
type furnished struct {
	*world
	console string
	// permission and question are the addresses of what lisbon and porto ask, proposed and finished those of what is done with many runs.
	permission, question, proposed, finished string
}

// furnish starts runs that wait, and others that have ended, and makes a dead letter.
func furnish(t *testing.T) furnished {
	t.Helper()
	w := newWorld(t)
	_, console := w.served()
	f := furnished{world: w, console: console.address()}
	w.run("lisbon", "Two nights in Lisbon, please", "--tag", "tenant=acme", "--as", "shop", "--detach")
	w.run("porto", "A night in Porto", "--detach")
	w.run("oslo", "Porto, or else Oslo", "--answer", "No, thank you")
	w.run("bergen", "Porto, or else Bergen", "--detach")
	f.permission, f.question = w.asked("lisbon"), w.asked("porto")
	w.asked("bergen")
	w.agentd("runs", "cancel", "bergen", "--reason", "nobody wants to go")
	w.publish("agentd.in.x.y.travel_desk.z.c", "this is not an event")
	f.proposed = w.bulk("cancel", "status:waiting", "--text", "nobody wants to go")
	f.finished = w.bulk("retry", "run:*", "--yes", "2")
	w.agentd("run", "weekend", "--subject", "trip", "--message", "What could I do this weekend?", "--quiet")
	await(t, "there is a dead letter", func() bool { return w.agentd("dlq", "list") != "" })
	return f
}

// bulk proposes something for many runs, and returns the address of the page of that.
func (w *world) bulk(verb, filter string, more ...string) string {
	w.t.Helper()
	out := w.agentd(append([]string{"bulk", verb, filter, "-o", "json"}, more...)...)
	var job struct{ ID string }
	if err := json.Unmarshal([]byte(out), &job); err != nil {
		w.t.Fatalf("%v in %s", err, out)
	}
	return "/bulk/" + job.ID
}

// run starts a run of the travel desk.
func (w *world) run(name, message string, more ...string) {
	w.t.Helper()
	w.agentd(append([]string{"run", "travel.desk", "--subject", name, "--message", message, "--quiet"}, more...)...)
}

// asked waits until a run asks a person, and returns the address of the page of that.
func (w *world) asked(run string) (address string) {
	w.t.Helper()
	await(w.t, run+" asks a person", func() bool {
		for _, r := range w.open() {
			if r.Run == run {
				address = "/inbox/" + url.PathEscape(r.ID)
			}
		}
		return address != ""
	})
	return address
}

// waits starts a run of the travel desk that asks a person, and returns the address of the page of that.
func (w *world) waits(run, message string) (address string) {
	w.t.Helper()
	w.run(run, message, "--detach")
	return w.asked(run)
}

// listed is a world with a run that waits for a permission, and a tab with the list of runs.
func listed(t *testing.T) (w *world, server *process, list *tab) {
	t.Helper()
	w = newWorld(t)
	server, console := w.served()
	w.waits("lisbon", "Two nights in Lisbon, please")
	list = newTab(t, console.address())
	list.comesTo("/runs", "permission for book_trip")
	return w, server, list
}

// openRequest is a request as the command line lists it.
type openRequest struct{ ID, Run string }

// open is what the command line says that people are asked.
func (w *world) open() (list []openRequest) {
	w.t.Helper()
	out := w.agentd("approvals", "list", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		w.t.Fatalf("%v in %s", err, out)
	}
	return list
}

// publish publishes what is not an event.
func (w *world) publish(subject, data string) {
	w.t.Helper()
	nc, err := nats.Connect(w.url())
	if err != nil {
		w.t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := js.Publish(subject, []byte(data)); err != nil {
		w.t.Fatal(err)
	}
}

// place is a page with a name that can be that of a file.
type place struct{ name, path string }

func (f furnished) places() []place {
	return []place{
		{"overview", "/"},
		{"runs", "/runs"},
		{"runs-none", "/runs?q=run:nothing"},
		{"runs-fault", "/runs?q=colour:red"},
		{"run", "/runs/lisbon"},
		{"run-done", "/runs/oslo"},
		{"run-cancelled", "/runs/bergen"},
		{"timeline", "/runs/lisbon/timeline"},
		{"timeline-agents", "/runs/trip/timeline"},
		{"journal", "/runs/oslo/journal"},
		{"entry", "/runs/oslo/journal/3"},
		{"state", "/runs/oslo/state"},
		{"events", "/runs/lisbon/events"},
		{"inbox", "/inbox"},
		{"request", f.permission},
		{"edit", f.permission + "/edit"},
		{"question", f.question},
		{"bulk", "/bulk?q=status:waiting"},
		{"bulk-proposed", f.proposed},
		{"bulk-finished", f.finished},
		{"dead-letters", "/dead-letters"},
		{"dead-letter", "/dead-letters/1"},
		{"agents", "/agents"},
		{"agent", "/agents/travel.desk"},
		{"services", "/services"},
		{"contract", "/contracts/bookings.book"},
		{"health", "/health"},
		{"nothing", "/nothing"},
	}
}

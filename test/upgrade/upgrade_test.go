package upgrade

import (
	"context"
	"encoding/json"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

var (
	enabled = flag.Bool("upgrade", false, "build the older worker and let both serve; takes minutes")
	outage  = flag.Duration("outage", 5*time.Second, "how long the model is away")
)

func TestUpgrade(t *testing.T) {
	if !*enabled {
		t.Skip("make upgrade runs it")
	}
	built := build(t)
	for name, serve := range map[string]func(*world, programs){
		"in turns": (*world).serveTurns, "without a model": (*world).serveOutage, "a later layout": (*world).serveLaterLayout,
		"packed entries": (*world).servePacked,
	} {
		for _, store := range []string{"jetstream", "redis"} {
			t.Run(name+"/"+store, func(t *testing.T) {
				w := start(t, store)
				serve(w, built)
				w.finish()
				w.judge()
			})
		}
	}
}

// serveTurns starts 200 runs and decides what they ask, a part of them in each turn, while one version serves, or both do. What
// is asked under one version is decided under the next one. The older one cannot read packed entries: whoever wants to go back to it has
// the newer one store them as they are.
func (w *world) serveTurns(p programs) {
	w.environment = append(w.environment, "AGENTD_ENTRIES=plain")
	w.command(p.older, "provision")
	turns := [][]string{{p.older}, {p.newer}, {p.older, p.newer}, {p.older}, {p.newer}}
	for i, programs := range turns {
		if i == 1 {
			w.command(p.newer, "provision")
		}
		var serving []*worker
		for _, program := range programs {
			serving = append(serving, w.work(program))
		}
		asked := w.runs
		w.begin(200 / len(turns))
		for _, r := range asked {
			w.answerOnce(r)
		}
		w.settled(w.runs)
		for j, worker := range serving {
			worker.stop((i+j)%2 == 0)
		}
	}
	w.work(p.newer)
}

// serveOutage kills the model while half of 100 runs wait for people and the other half is on its way, and lets people answer and
// the newer version take over before it is back.
func (w *world) serveOutage(p programs) {
	w.command(p.older, "provision")
	former := w.work(p.older)
	asked := w.begin(50)
	w.settled(asked)
	w.begin(50)
	w.model.kill()
	back := time.NewTimer(*outage)
	answered := asked[:len(asked)/2]
	for _, r := range answered {
		for w.answerOnce(r) {
		}
	}
	parked := 0
	w.until("all runs wait", func(ctx context.Context) (bool, error) {
		waiting := 0
		parked = 0
		for s, err := range w.client.List(ctx, "clerk", wire.StatusWaiting) {
			if err != nil {
				return false, ignoreUnknown(err)
			}
			waiting++
			if s.Parked != nil {
				parked++
			}
		}
		return waiting == len(w.runs) && parked >= len(answered), nil
	})
	w.t.Logf("%d of %d runs wait for the model, which is away for %s", parked, len(w.runs), outage)
	w.command(p.newer, "provision")
	w.work(p.newer)
	former.stop(true)
	<-back.C
	w.model.start()
}

// serveLaterLayout has runs that a version with a later layout began answered while only this version serves, which leaves them to the
// later one, tells so whoever asks, and serves its own.
func (w *world) serveLaterLayout(p programs) { w.serveLeft(p.newer, p.later) }

// servePacked has a version that knows nothing of packed entries meet runs whose entries the newer one has packed.
func (w *world) servePacked(p programs) { w.serveLeft(p.unpacked, p.newer) }

// serveLeft has runs that one program began answered while only another one serves, which leaves them to the first.
func (w *world) serveLeft(other, first string) {
	w.command(first, "provision")
	later := w.work(first)
	left := w.begin(20)
	w.settled(left)
	asked := map[client.Run][]client.Call{}
	for _, r := range left {
		asked[r] = w.asked(r)
	}
	later.stop(true)

	here := w.work(other)
	hasty := w.connect(100 * time.Millisecond)
	allow, err := json.Marshal(sdk.PermissionDecision{Decision: sdk.DecisionAllow})
	if err != nil {
		w.t.Fatal(err)
	}
	var answers []string
	for _, r := range left {
		for _, call := range asked[r] {
			outcome, err := hasty.Publish(w.t.Context(), call, sdk.TypePermissionDecided, allow, nil)
			if err != nil || outcome.State != client.OutcomeSent {
				w.t.Errorf("an answer to run %s came to %+v, %v; want that it waits", r.Name, outcome, err)
			}
			answers = append(answers, outcome.Event)
		}
		if _, err := w.client.Status(w.t.Context(), r); sdk.AsError(err).Code != sdk.CodeUnavailable {
			w.t.Errorf("the status of run %s is refused with %v, want %s", r.Name, err, sdk.CodeUnavailable)
		}
	}
	own := w.begin(10)
	w.settled(own)
	for _, r := range own {
		w.answerOnce(r)
	}
	w.until("each answer came twice", func(context.Context) (bool, error) {
		return !slices.ContainsFunc(answers, func(id string) bool { return strings.Count(here.log.String(), `"subject":"`+id) < 2 }), nil
	})
	here.stop(true)
	w.work(first)
}

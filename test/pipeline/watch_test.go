package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// typing answers in two fragments.
type typing struct{}

func (typing) Generate(_ context.Context, _ sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	onDelta(sdk.Delta{Text: "thr"})
	onDelta(sdk.Delta{Text: "ee"})
	return sdktest.Say("three"), nil
}

// typed is everything that is told of a run of typing, from its start to its end.
var typed = []string{
	`run.started`, `checkpoint`, `context.budget`, `turn.started`, `message.started`, `model.delta {"text":"thr"}`,
	`model.delta {"text":"ee"}`, `message.ended`, `model.usage`, `model.reply {"text":"{\"response\":\"three\"}"}`, `run.usage`,
	`checkpoint`, `run.finished`,
}

// shown is a live event, with the data of those that have what a model says.
func shown(l wire.Live) string {
	if l.Type == wire.LiveDelta || l.Type == wire.MilestoneReply {
		return l.Type + " " + string(l.Data)
	}
	return l.Type
}

// overheard is what is published as live events, to whoever listens without saying so.
type overheard struct {
	r    *rig
	mu   sync.Mutex
	told []string
	mark chan struct{}
}

func (r *rig) overhear() *overheard {
	r.t.Helper()
	o := &overheard{r: r, mark: make(chan struct{}, 1)}
	stop, err := r.client.Tail("agentd.stream.>", func(_ string, _ map[string][]string, data []byte) {
		var l wire.Live
		if err := json.Unmarshal(data, &l); err != nil {
			r.t.Error(err)
		}
		if l.Run == "mark" {
			o.mark <- struct{}{}
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.told = append(o.told, shown(l))
	})
	r.check("listen", err)
	r.t.Cleanup(func() { r.check("stop listening", stop()) })
	return o
}

// of is what was published of a run that has ended: live events go out before the terminal event.
func (o *overheard) of(name string) []string {
	o.r.t.Helper()
	o.taken() // what is of other runs
	o.r.end(o.r.begin(name))
	return o.taken()
}

// taken is what was published up to now and has not been taken.
func (o *overheard) taken() []string {
	o.r.t.Helper()
	o.r.client.Live(wire.Live{Run: "mark", Agent: "desk"})
	<-o.mark
	o.mu.Lock()
	defer o.mu.Unlock()
	told := o.told
	o.told = nil
	return told
}

// ignored waits until workers that have just started know that nobody watches.
func (o *overheard) ignored() {
	o.r.t.Helper()
	n := 0
	o.r.until("nobody is told of runs", func() bool {
		n++
		return len(o.of(fmt.Sprint("ignored ", n))) == 0
	})
}

func TestWatch_NobodyIsToldOfRunsThatNobodyWatches(t *testing.T) {
	t.Parallel()
	r := startRig(t, rig{model: typing{}, specs: []sdk.AgentSpec{desk()}}, 0)
	r.work(0)
	o := r.overhear()
	o.ignored()
	if told := o.of("one"); len(told) > 0 {
		t.Errorf("told to nobody: %q", told)
	}
	watched := r.every("watched")
	r.end(r.begin("watched"))
	<-watched
	if told := o.of("two"); len(told) > 0 {
		t.Errorf("told of a run beside one that is watched: %q", told)
	}
}

func TestWatch_LiveAlwaysTellsWhoAnnouncesNothing(t *testing.T) {
	t.Parallel()
	always := desk()
	always.Live = sdk.LiveAlways
	r := startRig(t, rig{model: typing{}, specs: []sdk.AgentSpec{always}}, 0)
	r.work(0)
	o := r.overhear()
	o.of("the first")
	if diff := cmp.Diff(typed, o.of("one")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// every sends all that who watches a run is told, once it has ended, as it comes: nothing is asked for.
func (r *rig) every(name string) <-chan []string {
	r.t.Helper()
	seen := make(chan []string, 1)
	var list []string
	stop, err := r.client.WatchLive("desk", wire.NewRunKey(name), func(l wire.Live) {
		if list = append(list, shown(l)); l.Type == wire.MilestoneFinished {
			seen <- list
		}
	}, func(error) {})
	r.check("watch "+name, err)
	r.t.Cleanup(func() { r.check("stop watching", stop()) })
	return seen
}

func TestWatch_FromTheStartNothingIsMissed(t *testing.T) {
	t.Parallel()
	r := startRig(t, rig{model: typing{}, specs: []sdk.AgentSpec{desk()}}, 0)
	r.work(0)
	r.work(0)
	r.overhear().ignored()
	for i := range 50 {
		name := fmt.Sprint("run ", i)
		seen := r.every(name)
		r.begin(name)
		if diff := cmp.Diff(typed, <-seen); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWatch_FromTheMiddleNoMilestoneIsMissed(t *testing.T) {
	t.Parallel()
	r := startRig(t, rig{model: twoSteps(nil), specs: []sdk.AgentSpec{desk()}}, 0)
	r.work(0)
	run := r.begin("one")
	r.until("the run waits", func() bool { return r.head(run).Status == "waiting" })
	f := r.follow(r.client, "one", wire.Mark{})
	seen := f.upTo(wire.MilestoneSuspended)
	r.answerSums("", nil)
	seen = append(seen, f.upTo(wire.MilestoneFinished)...)
	r.check("follow", <-f.done)
	r.check("close", f.Close())
	if diff := cmp.Diff(r.milestones(run), seen); diff != "" {
		t.Errorf("milestones (-in the journal +seen):\n%s", diff)
	}
}

// A worker that starts after somebody began to watch tells them, and one whose connection was gone does, too.
func TestWatch_AWorkerThatStartsLaterTells(t *testing.T) {
	t.Parallel()
	r := startRig(t, rig{model: typing{}, specs: []sdk.AgentSpec{desk()}}, 0)
	seen := r.every("one")
	r.begin("one")
	w := r.work(0)
	if diff := cmp.Diff(typed, <-seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.overhear().ignored()
	f := r.follow(r.client, "two", wire.Mark{})
	r.down(w.conn)
	r.up()
	r.until("all are connected again", func() bool { return w.conn.Connected() && r.client.Connected() })
	run := r.begin("two")
	told := f.upTo(wire.MilestoneFinished)
	r.check("follow", <-f.done)
	r.check("close", f.Close())
	if diff := cmp.Diff(r.milestones(run), told); diff != "" {
		t.Errorf("milestones after the outage (-in the journal +seen):\n%s", diff)
	}
}

package pipeline

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
	"agentd/sdk/wire"
)

var (
	outage = flag.Duration("outage", time.Second, "how long the model is away in TestParked_OutageInTheMiddleOfAHundredRuns")
	crowd  = flag.Int("crowd", 20, "how many long runs there are beside those that kill their workers in TestPoison_ThreeAmongMany")
)

// mostGrowth is how much more memory, in bytes, may be in use after an outage than at its beginning.
const mostGrowth = 32 << 20

// absentee is a model that goes away after a number of replies, until it is called back. Runs whose name begins with "asks" ask a person
// and all others a service before they end.
type absentee struct {
	mu      sync.Mutex
	replies int // before it goes away; negative is never
}

func (m *absentee) Generate(_ context.Context, req sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.replies == 0:
		return sdk.ModelReply{}, away(20 * time.Second)
	case m.replies > 0:
		m.replies--
	}
	switch {
	case req.Interactions.Current > 0:
		return sdktest.Say("three"), nil
	case strings.HasPrefix(req.Run, "asks"):
		return sdktest.Ask(sdktest.Tool(toolbox.AskQuestion, map[string]string{"question": "Which size?"})), nil
	}
	return sdktest.Ask(add(1, 2)), nil
}

func (m *absentee) comeBack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replies = -1
}

func (m *absentee) away() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replies == 0
}

// countSums answers calls of calc.add, and counts them by their run.
func (r *rig) countSums() (counts func() map[string]int) {
	r.t.Helper()
	var mu sync.Mutex
	by := map[string]int{}
	calc, err := service.New(desk().Services[0].Contract)
	r.check("make service", err)
	service.Handle(calc, func(_ context.Context, call service.Call, _ map[string]float64) (map[string]int, error) {
		mu.Lock()
		defer mu.Unlock()
		by[call.Event.Subject]++
		return sum(3), nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	server := service.Server{URL: r.server.URL(), Logger: r.log()}
	go func() { done <- server.Run(ctx, calc) }()
	r.t.Cleanup(func() {
		stop()
		r.check("stop service", <-done)
	})
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		counts := map[string]int{}
		for run, n := range by {
			counts[run] = n
		}
		return counts
	}
}

// questions are the calls on AGENTD_OUT that ask a person, by their subject.
func (r *rig) questions() map[string]wire.Event {
	r.t.Helper()
	asked := map[string]wire.Event{}
	filter := []string{"agentd.out.*." + wire.NameToken(sdk.TypeQuestion) + ".>"}
	r.check("read questions", r.client.Deliveries(r.t.Context(), streams.Out, filter, func(d broker.Delivery) bool {
		ev, err := wire.DecodeEvent(d.Headers(), d.Data())
		r.check("decode a question", err)
		asked[d.Subject()] = ev
		return true
	}))
	return asked
}

// answerPerson answers a question as a person.
func (r *rig) answerPerson(subject string, question wire.Event) {
	r.t.Helper()
	r.check("answer", r.client.Answer(r.t.Context(), subject, wire.Event{
		ID: "answer to " + question.ID, Source: "com.test.person", Type: sdk.TypeQuestionAnswered, Subject: question.Subject,
		Time: time.UnixMilli(1_790_000_000_000), DataSchema: question.DataSchema, To: question.RedirectTo, ParentID: question.ID,
		Data: json.RawMessage(`{"answer":"XL"}`),
	}))
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// A model goes away in the middle of a hundred runs, some of which wait for people: all of them complete when it is back, no service was
// called twice, nobody was taken for dead, and waiting takes no memory. In test/upgrade the worker is replaced by one of another version
// meanwhile.
func TestParked_OutageInTheMiddleOfAHundredRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("a parked run is tried again after 30 s")
	}
	const all, people = 100, 20
	model := &absentee{replies: 130}
	spec := desk()
	spec.Builtin = []string{toolbox.AskQuestion}
	r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: model, slots: 8}, 0)
	calls := r.countSums()
	r.work(0)
	var runs []harness.Run
	for i := range all {
		kind := "sums"
		if i%(all/people) == 0 {
			kind = "asks"
		}
		runs = append(runs, r.begin(fmt.Sprint(kind, " ", i)))
	}
	r.until("the model is away", model.away)
	began := time.Now()
	r.until("nobody has a run", func() bool {
		return !slices.ContainsFunc(runs, func(run harness.Run) bool {
			return r.head(run).Status != core.StatusWaiting && r.head(run).Status != core.StatusDone
		})
	})
	before, parked := heapInUse(), 0
	for _, run := range runs {
		if r.head(run).Parked != nil {
			parked++
		}
	}
	questions := r.questions()
	answered := 0
	for subject, q := range questions {
		if answered++; answered <= len(questions)/2 {
			r.answerPerson(subject, q)
		}
	}
	timer := time.NewTimer(time.Until(began.Add(*outage)))
	<-timer.C
	after := heapInUse()
	model.comeBack()
	back := time.Now()
	answeredRuns := map[string]bool{}
	for left := slices.Clone(runs); len(left) > 0; <-time.After(time.Second) {
		for subject, q := range r.questions() { // those that were asked after the outage, too
			if !answeredRuns[subject] {
				r.answerPerson(subject, q)
				answeredRuns[subject] = true
			}
		}
		left = slices.DeleteFunc(left, func(run harness.Run) bool { return r.head(run).Status == core.StatusDone })
		if time.Since(back) > 10*time.Minute {
			t.Fatalf("%d of %d runs have not ended", len(left), all)
		}
	}
	reader := runner.New(runner.Options{Store: r.store})
	for _, run := range runs {
		wantResponse(t, r.end(run), "three")
		entries, err := reader.Journal(t.Context(), run.Key)
		r.check("read the journal", err)
		for _, e := range entries {
			if d := e.Head.Driver; d != nil && d.Takeovers > 0 { // one that was handed back does not count
				t.Errorf("a worker of %s was taken for dead", run.Subject)
			}
		}
	}
	for run, n := range calls() {
		if n != 1 {
			t.Errorf("the service was called %d times for %s", n, run)
		}
	}
	if after > before+mostGrowth {
		t.Errorf("%d bytes in use at the end of the outage, %d at its beginning", after, before)
	}
	// The first is tried again when its pause is over, and all others after it. Pauses double while the model is away.
	if late, longest := time.Since(back), *outage+2*time.Minute; late > longest {
		t.Errorf("the last run ended %s after the model was back, want at most %s", late.Round(time.Second), longest)
	}
	t.Logf("%d runs completed, %d calls of the service, %d parked, away %s, the last ended %s after it was back, heap %d -> %d KiB",
		all, len(calls()), parked, outage, time.Since(back).Round(time.Second), before>>10, after>>10)
	sound(t, r.client, r.store)
}

// Three runs that kill their worker, again and again, on two workers end as poison, and all long runs beside them complete.
func TestPoison_ThreeAmongMany(t *testing.T) {
	t.Parallel()
	r := startRig(t, rig{specs: []sdk.AgentSpec{burning().Spec}}, shortLease)
	var long, poison []harness.Run
	for i := range *crowd {
		long = append(long, r.begin(fmt.Sprint("long ", i)))
		if i < 3 {
			poison = append(poison, r.begin(fmt.Sprint("poison ", i)))
		}
	}
	began := time.Now()
	r.mortals()
	r.mortals()
	for _, run := range long {
		wantResponse(t, r.end(run), "hi")
	}
	for _, run := range poison {
		wantProblem(t, r.end(run), "desk", sdk.CodePoison)
	}
	t.Logf("%d long runs completed, %d ended as poison, after %s", len(long), len(poison), time.Since(began).Round(time.Second))
	sound(t, r.client, r.store)
}

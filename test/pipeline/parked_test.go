package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// provider is a model that asks for a sum and says it, as long as it is not away: then it fails, with the errors in turn, whenever a
// run whose name begins with "waits" asks for the reply after the sum.
type provider struct {
	mu       sync.Mutex
	failures []error
	asked    int
}

func (p *provider) Generate(_ context.Context, req sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !strings.HasPrefix(req.Run, "waits"):
		return sdktest.Say("hi"), nil
	case req.Interactions.Current == 0:
		return sdktest.Ask(add(1, 2)), nil
	case len(p.failures) == 0:
		return sdktest.Say("three"), nil
	}
	p.asked++
	return sdk.ModelReply{}, p.failures[(p.asked-1)%len(p.failures)]
}

// answer ends the outage.
func (p *provider) answer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = nil
}

// fail has it fail with another error.
func (p *provider) fail(failure error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = []error{failure}
}

// calls is how often the model failed.
func (p *provider) calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// away asks for a pause in which no run is sent to see whether the model answers.
func away(pause time.Duration) *sdk.Error {
	return &sdk.Error{Code: sdk.CodeUnavailable, Message: "the model cannot be reached", Retryable: true, RetryAfter: pause}
}

// unreachable is away for so long that a test can look on.
var unreachable = away(time.Hour)

// onBothStores runs a test with its runs in JetStream and in Redis.
func onBothStores(t *testing.T, test func(t *testing.T, open func(*broker.Conn) runner.Store)) {
	t.Run("jetstream", func(t *testing.T) {
		t.Parallel()
		test(t, nil)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		addr := redistest.StartServer(t).Addr()
		test(t, func(*broker.Conn) runner.Store {
			store := redisstore.New(redis.NewClient(&redis.Options{Addr: addr}), redisstore.Options{})
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
			return store
		})
	})
}

// parked waits until the run is parked for the nth time in a row.
func (r *rig) parked(run harness.Run, try int) *core.Parking {
	r.t.Helper()
	var p *core.Parking
	r.until(fmt.Sprintf("%s is parked, try %d", run.Subject, try), func() bool {
		h := r.head(run)
		p = h.Parked
		return h.Status == core.StatusWaiting && p != nil && p.Until > 0 && p.Tries == try
	})
	return p
}

// Whatever keeps a model from answering but the request itself, the run waits, with growing pauses, and goes on when the model does:
// nobody has it meanwhile, its service is not called again, and nobody is said to have died.
func TestParked_RunWaitsForItsModelAndGoesOn(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, open func(*broker.Conn) runner.Store) {
		limited := &sdk.Error{Code: sdk.CodeRateLimited, Message: "slow down", Retryable: true, RetryAfter: time.Hour}
		key := sdk.Errorf(sdk.CodeConfig, "the key is wrong")
		p := &provider{failures: []error{limited, away(20 * time.Second), key, errors.New("dial: no route")}}
		r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: p, slots: 1, openStore: open}, 0)
		r.answerSums("", nil)
		r.work(0)
		run := r.begin("waits")
		for i, want := range []struct {
			why   core.ParkReason
			code  sdk.Code
			least time.Duration
		}{
			{core.ParkRate, sdk.CodeRateLimited, time.Hour},
			{core.ParkModel, sdk.CodeUnavailable, time.Minute},
			{core.ParkModel, sdk.CodeConfig, 2 * time.Minute},
			{core.ParkModel, sdk.CodeInternal, 4 * time.Minute},
		} {
			k := r.parked(run, i+1)
			if k.Why != want.why || k.Code != want.code {
				t.Errorf("try %d: the run waits for %+v, want %+v", i+1, k, want)
			}
			last, err := r.store.Head(t.Context(), run.Key)
			r.check("read head", err)
			entry, err := core.DecodeEntry(last.Data)
			r.check("decode entry", err)
			waits := time.Duration(k.Until-entry.At) * time.Millisecond
			if waits < want.least || waits > want.least+min(want.least, 10*time.Minute)/4 {
				t.Errorf("try %d: the run waits %v, want %v and up to a quarter more", i+1, waits, want.least)
			}
			if h := r.head(run); h.Timer == 0 || h.Timer > k.Until || h.Driver != nil {
				t.Errorf("try %d: the timer is armed for %d, the time is %d; the driver is %+v", i+1, h.Timer, k.Until, h.Driver)
			}
			if n := p.calls(); n != i+1 {
				t.Errorf("try %d: the model was asked %d times", i+1, n)
			}
			if i == 3 {
				p.answer()
			}
			r.control(run, wire.ControlUnpark, `{}`)
		}
		wantResponse(t, r.end(run), "three")
		entries, err := r.work(0).Runner().Journal(t.Context(), run.Key)
		r.check("read the journal", err)
		results := 0
		for _, e := range entries {
			results += len(e.Results)
			if d := e.Head.Driver; d != nil && d.Takeovers > 0 {
				t.Errorf("entry %d counts %d deaths", e.Rev, d.Takeovers)
			}
		}
		if results != 1 {
			t.Errorf("the journal has %d results, want 1", results)
		}
		sound(t, r.client, r.store)
	})
}

// While a model is away, only one run asks it, whatever worker it is on. The first reply after that has all of them go on, long
// before their time.
func TestParked_TheFirstReplyWakesAll(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, open func(*broker.Conn) runner.Store) {
		p := &provider{failures: []error{unreachable}}
		r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: p, openStore: open}, 0)
		r.answerSums("", nil)
		r.work(0)
		r.work(0)
		first := r.begin("waits for it")
		until := r.parked(first, 1).Until
		var runs []harness.Run
		for i := range 20 {
			runs = append(runs, r.begin(fmt.Sprint("waits ", i)))
		}
		for _, run := range runs {
			r.until(run.Subject+" is parked", func() bool { h := r.head(run); return h.Parked != nil && h.Status == core.StatusWaiting })
		}
		// One may have asked while the first one's word was on its way to the other worker, and each worker's own first.
		if n := p.calls(); n > 3 {
			t.Errorf("the model that is away was asked %d times by 21 runs", n)
		}
		p.answer()
		r.control(first, wire.ControlUnpark, `{}`)
		for _, run := range append(runs, first) {
			wantResponse(t, r.end(run), "three")
		}
		if late := time.Now().UnixMilli() - until; late > 0 {
			t.Errorf("the last run ended %d ms after the first one would have been tried again", late)
		}
		sound(t, r.client, r.store)
	})
}

// A parked run leaves the worker's only slot to others, and a cancel ends it at once.
func TestParked_CancelEndsTheRunAtOnce(t *testing.T) {
	t.Parallel()
	p := &provider{failures: []error{unreachable}}
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: p, slots: 1}, 0)
	r.answerSums("", nil)
	r.work(0)
	run := r.begin("waits")
	r.parked(run, 1)
	r.parked(r.begin("another"), 1)
	r.control(run, wire.ControlCancel, `{"reason":"enough"}`)
	wantProblem(t, r.end(run), "desk", sdk.CodeCancelled)
	sound(t, r.client, r.store)
}

// answerLate answers the first call of the test by hand: a service would drop one whose void it has seen.
func (r *rig) answerLate() {
	r.t.Helper()
	var first broker.Delivery
	r.check("read the call", r.client.Deliveries(r.t.Context(), streams.Out, []string{r.client.Subjects().All(wire.KindOut)}, func(d broker.Delivery) bool {
		first = d
		return false
	}))
	call, err := wire.DecodeEvent(first.Headers(), first.Data())
	r.check("read the call", err)
	r.check("answer late", r.client.Answer(r.t.Context(), first.Subject(), wire.Event{
		ID: "late", Source: call.Type, Type: "calc.added", Subject: call.Subject, Time: time.UnixMilli(1_790_000_000_000),
		DataSchema: call.DataSchema, To: call.RedirectTo, ParentID: call.ID, Data: []byte(`{"sum":99}`),
	}))
}

// Messages and late answers reach a parked run, and wake nobody. It has them when it goes on.
func TestParked_AbsorbsWhatComes(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, open func(*broker.Conn) runner.Store) {
		p := &provider{failures: []error{unreachable}}
		spec := desk()
		spec.Services[0].TimeoutMillis = 100
		r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: p, openStore: open}, 0)
		r.work(0)
		run := r.begin("waits")
		r.parked(run, 1)
		r.answerLate()
		r.until("the late answer is acked", func() bool { return r.floors()[1] == 1 })
		r.control(run, wire.ControlMessage, `{"message":"still there?"}`)
		r.until("the message is absorbed", func() bool { return len(r.head(run).Notes) == 1 })
		if h := r.head(run); p.calls() != 1 || h.Status != core.StatusWaiting || h.Parked.Until == 0 {
			t.Errorf("after %d calls of the model the run is %s, %+v", p.calls(), h.Status, h.Parked)
		}
		p.answer()
		r.control(run, wire.ControlUnpark, `{}`)
		wantResponse(t, r.end(run), "three")
		var said []string
		entries, err := r.work(0).Runner().Journal(t.Context(), run.Key)
		r.check("read the journal", err)
		for _, e := range entries {
			for _, n := range e.Notes {
				said = append(said, n.Text)
			}
		}
		if diff := cmp.Diff([]string{"still there?"}, said); diff != "" {
			t.Errorf("messages into the run (-want +got):\n%s", diff)
		}
		sound(t, r.client, r.store)
	})
}

// Where all runs wait for a model, none comes in, and no provider asks for more, one is sent to ask it a second later.
func TestParked_OneIsSentWhereAllWait(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, open func(*broker.Conn) runner.Store) {
		p := &provider{failures: []error{away(0)}}
		r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: p, openStore: open}, 0)
		r.answerSums("", nil)
		r.work(0)
		runs := []harness.Run{r.begin("waits"), r.begin("waits, too")}
		var key string
		var until int64 // the later of the times
		r.until("both wait", func() bool {
			until = 0
			for _, run := range runs {
				p := r.head(run).Parked
				if p == nil || p.Until == 0 { // it is not there yet, or asks
					return false
				}
				key, until = p.Key, max(until, p.Until)
			}
			return true
		})
		r.marks(key, len(runs))
		p.answer()
		for _, run := range runs {
			wantResponse(t, r.end(run), "three")
		}
		if late := time.Now().UnixMilli() - until; late > 0 {
			t.Errorf("the last run ended %d ms after one would have been tried again", late)
		}
		sound(t, r.client, r.store)
	})
}

// A parked run is tried again at its time without anybody's word, also if its mark is lost, by which others would find it.
func TestParked_GoesOnAtItsTime(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the first pause is 30 s")
	}
	p := &provider{failures: []error{away(20 * time.Second)}}
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: p}, 0)
	r.answerSums("", nil)
	r.work(0)
	run := r.begin("waits")
	waits := r.parked(run, 1)
	until := waits.Until
	r.marks(waits.Key, 1)
	r.check("take the mark away", r.client.UnmarkParked(t.Context(), waits.Key, broker.ParkedRun{Agent: "desk", Run: run.Key}))
	p.answer()
	wantResponse(t, r.end(run), "three")
	if early := until - time.Now().UnixMilli(); early > 0 {
		t.Errorf("the run ended %d ms before its time", early)
	}
	sound(t, r.client, r.store)
}

// The deadline of a parked run ends it, however long the pause would be.
func TestParked_DeadlineEndsTheRun(t *testing.T) {
	t.Parallel()
	p := &provider{failures: []error{unreachable}}
	spec := desk()
	spec.Limits.DeadlineMillis = (10 * time.Second).Milliseconds() // in which the model is asked once
	r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: p}, 0)
	r.answerSums("", nil)
	r.work(0)
	run := r.begin("waits")
	wantProblem(t, r.end(run), "desk", sdk.CodeDeadline)
	if n := p.calls(); n != 1 {
		t.Errorf("the model was asked %d times, want once", n)
	}
	sound(t, r.client, r.store)
}

// marks waits until so many runs are marked as waiting for what key names.
func (r *rig) marks(key string, want int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d runs are marked", want), func() bool {
		marked, err := r.client.ParkedRuns(r.t.Context(), key, "")
		r.check("list the marks", err)
		return len(marked) == want
	})
}

// A run that does not wait any more leaves no mark, however it came to that: it was cancelled, came to its deadline, failed otherwise, or
// went on to its end.
func TestParked_LeavesNoMark(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		deadline time.Duration
		end      func(*rig, *provider, harness.Run)
		code     sdk.Code
	}{
		"cancelled": {time.Hour, func(r *rig, _ *provider, run harness.Run) {
			r.control(run, wire.ControlCancel, `{"reason":"enough"}`)
		}, sdk.CodeCancelled},
		"too late": {15 * time.Second, func(*rig, *provider, harness.Run) {}, sdk.CodeDeadline},
		"failed": {time.Hour, func(r *rig, p *provider, run harness.Run) {
			p.fail(sdk.Errorf(sdk.CodeModel, "the content filter stopped the reply"))
			r.control(run, wire.ControlUnpark, `{}`)
		}, sdk.CodeModel},
		"completed": {time.Hour, func(r *rig, p *provider, run harness.Run) {
			p.answer()
			r.control(run, wire.ControlUnpark, `{}`)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &provider{failures: []error{unreachable}}
			spec := desk()
			spec.Limits.DeadlineMillis = tt.deadline.Milliseconds()
			r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: p}, 0)
			r.answerSums("", nil)
			r.work(0)
			run := r.begin("waits")
			key := r.parked(run, 1).Key
			r.marks(key, 1)
			tt.end(r, p, run)
			if ev := r.end(run); tt.code == "" {
				wantResponse(t, ev, "three")
			} else {
				wantProblem(t, ev, "desk", tt.code)
			}
			r.marks(key, 0)
			sound(t, r.client, r.store)
		})
	}
}

// A run ends where waiting would not help: when the model refuses the request itself, and where the agent does not want its runs to
// wait for such a failure.
func TestParked_WhatDoesNotPassEndsTheRun(t *testing.T) {
	t.Parallel()
	key := sdk.Errorf(sdk.CodeConfig, "the key is wrong")
	for name, tt := range map[string]struct {
		park    []sdk.Code
		failure *sdk.Error
	}{
		"the request is refused": {nil, sdk.Errorf(sdk.CodeModel, "the content filter stopped the reply")},
		"only outages park":      {[]sdk.Code{sdk.CodeUnavailable}, key},
		"nothing parks":          {[]sdk.Code{}, unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &provider{failures: []error{tt.failure}}
			spec := desk()
			spec.Model.Park = tt.park
			r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: p}, 0)
			r.answerSums("", nil)
			r.work(0)
			problem := wantProblem(t, r.end(r.begin("waits")), "desk", tt.failure.Code)
			if n := p.calls(); n != 1 || problem.ErrorMessage != tt.failure.Message {
				t.Errorf("after %d calls: %q", n, problem.ErrorMessage)
			}
			sound(t, r.client, r.store)
		})
	}
}

// control sends a control message to a run of desk.
func (r *rig) control(run harness.Run, verb wire.ControlVerb, data string) {
	r.t.Helper()
	r.check(string(verb), r.client.Control(r.t.Context(), verb, "desk", run.Key, "", wire.Event{
		ID: string(verb) + " of " + run.Subject, Source: "com.test.operator", Type: "agentd.run." + string(verb), Subject: run.Subject, Data: []byte(data),
	}))
}

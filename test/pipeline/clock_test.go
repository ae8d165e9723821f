package pipeline

import (
	"context"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/core"
	"agentd/internal/doctor"
	"agentd/internal/finding"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// A worker whose machine's clock is hours off gives people the time that the policy says, and is seen to be wrong.
func TestClock_AWorkerThatIsHoursOffDatesByTheBroker(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"behind": -2 * time.Hour, "ahead": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := desk()
			spec.Permissions = asking(sdk.PermissionPolicyTerms{TimeoutMillis: time.Hour.Milliseconds()}, "calc_*")
			r := startRig(t, rig{
				specs: []sdk.AgentSpec{spec}, model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")),
				clock: func() time.Time { return time.Now().Add(off) },
			}, 0)
			w := r.work(0)
			run := r.begin("run-1")
			var open core.Call
			r.until("the run waits for a decision", func() bool {
				for _, c := range r.head(run).Calls {
					if c.Kind == core.CallPermission && !c.Closed() {
						open = c
					}
				}
				return open.ID != ""
			})
			// A worker knows the broker's clock up to the time that a question and its answer take.
			if left := time.Until(time.UnixMilli(open.Due)); (left - time.Hour).Abs() > 2*time.Minute {
				t.Errorf("who decides has %s, want an hour", left)
			}
			if err := w.Ready(t.Context()); err == nil || !saysOff(err.Error(), name, off) {
				t.Errorf("the worker is ready: %v", err)
			}
			found := r.examine(spec)
			if f := found["clock"]; f.Severity != finding.SeverityError || !saysOff(f.Message, name, off) {
				t.Errorf("doctor finds %+v", found)
			}
		})
	}
}

var offText = regexp.MustCompile(`clock of its machine is (\S+) (behind|ahead) `)

// saysOff reports whether a text says that a clock is so far off, up to the time that measuring it takes.
func saysOff(text, direction string, off time.Duration) bool {
	m := offText.FindStringSubmatch(text)
	if m == nil || m[2] != direction {
		return false
	}
	said, err := time.ParseDuration(m[1])
	return err == nil && (said-off.Abs()).Abs() < 2*time.Minute
}

func TestClock_AWorkerWhoseClockIsRightIsReady(t *testing.T) {
	t.Parallel()
	spec := desk()
	r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: sdktest.Script(sdktest.Say("done"))}, 0)
	w := r.work(0)
	r.until("the worker is ready", func() bool { return w.Ready(t.Context()) == nil })
	r.end(r.begin("run-1"))
	if f, found := r.examine(spec)["clock"]; found {
		t.Errorf("doctor finds %+v", f)
	}
}

// examine is what doctor finds, by code.
func (r *rig) examine(spec sdk.AgentSpec) map[string]finding.Finding {
	r.t.Helper()
	cfg := &config.Config{Agents: []sdk.AgentSpec{spec}}
	cfg.NATS.URL = config.URL(r.server.URL())
	e, err := doctor.Examine(r.t.Context(), cfg, "", func(ctx context.Context) (*broker.Conn, error) {
		return broker.Connect(ctx, broker.ConnectOptions{URL: r.server.URL(), Name: "doctor", Subjects: wire.DefaultSubjects()})
	})
	r.check("examine", err)
	found := map[string]finding.Finding{}
	for _, f := range e.Findings {
		found[f.Code] = f
	}
	return found
}

// A worker whose question for the broker's clock is slow on its way there knows that clock the less. What it writes is dated no later than
// it came to be, so that a run which is retried again and again, each time as soon as it has ended, is retried each time.
func TestClock_ASlowMeasurementDatesNothingLater(t *testing.T) {
	t.Parallel()
	const slow = 3 * time.Second
	var asked atomic.Int64
	r := startRig(t, rig{
		specs: []sdk.AgentSpec{desk()},
		model: sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
			return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the content filter stopped the reply")
		}),
		clock: func() time.Time {
			if asked.Add(1) <= 2 { // when the worker connects, and when it asks
				return time.Now().Add(-slow)
			}
			return time.Now()
		},
	}, 0)
	w := r.work(0)
	r.until("the clock is measured", func() bool { return w.Ready(t.Context()) == nil })
	if ahead := w.conn.Now() - time.Now().UnixMilli(); ahead > 0 {
		t.Errorf("the worker takes the broker's clock to be %d ms ahead", ahead)
	}
	run := r.begin("run-1")
	asks := client.New(r.client, client.Options{Source: "operator"})
	named := client.Run{Agent: run.Agent, Name: run.Subject}
	for range 3 {
		wantProblem(t, r.end(run), "desk", sdk.CodeModel)
		next, taken, err := asks.Retry(t.Context(), named)
		if err != nil || !taken {
			t.Fatalf("the run is taken up: %t, %v", taken, err)
		}
		run.Init = next.Init
	}
	sound(t, r.client, r.store)
}

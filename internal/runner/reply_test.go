package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// now is when everything here happens, in Unix milliseconds.
const now = 1_790_000_000_000

// desk is an agent whose model calls all of its tools at once and then waits for them. It counts what it is asked.
type desk struct {
	tools []string
	size  int // bytes of each call's arguments, about
	// validated and checked count calls of Validate and Check, suspended those that a hook was told are suspended, by tool.
	validated, checked, suspended map[string]int
}

func newDesk(size int, tools ...string) *desk {
	return &desk{tools: tools, size: size, validated: map[string]int{}, checked: map[string]int{}, suspended: map[string]int{}}
}

// agent has a tool for each name. Those that begin with "inline" run in the worker, the others are services.
func (d *desk) agent() *runner.Agent {
	a := &runner.Agent{
		Core: &core.Spec{
			Name: "desk", Digest: core.Digest([]byte(`{}`)), Type: "shop.desk", OutputType: "shop.desk.done", MaxTurns: 5,
			RunDeadline: time.Hour.Milliseconds(), StaleAfter: time.Hour.Milliseconds(),
			NeedsRulings: true, Reviews: true, Hooked: true,
		},
		SpecJSON: []byte(`{}`), Model: d, ModelTimeout: time.Minute, Permissions: d, Inline: map[string]sdk.Tool{},
		Describe:     func(string) sdk.PermissionCheck { return sdk.PermissionCheck{} },
		BuildContext: func(context.Context, sdk.ContextInput) (sdk.Context, error) { return sdk.Context{}, nil },
		Estimate:     func([]sdk.Message) int { return 0 },
		CheckInput:   func(ev wire.Event) (json.RawMessage, *sdk.Error) { return ev.Data, nil },
		CheckAnswer: func(c core.Call, ev wire.Event, _ string) (runner.Answer, *sdk.Error) {
			return runner.Answer{Data: ev.Data, Decision: &sdk.PermissionDecision{
				Decision: sdk.DecisionAllow, ArgsHash: c.Permission.ArgsHash, Args: ev.Data,
			}}, nil
		},
		Phases: []sdk.Hook{{Name: "watch", AfterToolExecute: func(_ context.Context, o sdk.ToolOutcome) (sdk.ToolEffects, error) {
			if o.Outcome == sdk.OutcomeSuspended {
				d.suspended[o.Tool]++
			}
			return sdk.ToolEffects{}, nil
		}}},
	}
	for _, name := range d.tools {
		tool := core.Tool{Name: name, Kind: core.CallService, Type: "shop." + name, Validate: d.validate(name)}
		if strings.HasPrefix(name, "inline") {
			tool.Kind = core.CallInline
			a.Inline[name] = sdk.Tool{Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
				return json.RawMessage(`{}`), nil
			}}
		}
		a.Core.Tools = append(a.Core.Tools, tool)
	}
	return a
}

func (d *desk) validate(tool string) func(string) (json.RawMessage, []sdk.Fault) {
	return func(arguments string) (json.RawMessage, []sdk.Fault) {
		d.validated[tool]++
		canonical, err := wire.Canonicalize([]byte(arguments))
		if err != nil {
			return nil, []sdk.Fault{{Path: "$", Expected: "JSON", Got: err.Error()}}
		}
		return canonical, nil
	}
}

func (d *desk) Generate(context.Context, sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error) {
	var reply sdk.ModelReply
	for i, tool := range d.tools {
		reply.Calls = append(reply.Calls, sdk.ToolRequest{
			Name: tool, Arguments: fmt.Sprintf(`{"text":%q,"n":%d}`, strings.Repeat("x", d.size), i),
		})
	}
	return reply, nil
}

// Check asks for tools whose names end in "_ask", denies those in "_deny", and allows all others.
func (d *desk) Check(_ context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	d.checked[c.Tool]++
	switch _, verdict, _ := strings.Cut(c.Tool, "_"); verdict {
	case "deny":
		return sdk.PermissionRuling{Verdict: sdk.PermissionDeny}, nil
	case "ask":
		return sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Terms: sdk.PermissionTerms{
			Mode:   sdk.PermissionHold,
			Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: time.Minute.Milliseconds()}},
		}}, nil
	}
	return sdk.PermissionRuling{Verdict: sdk.PermissionAllow}, nil
}

func (*desk) Reserve(context.Context, sdk.PermissionCheck) (string, error) { return "", nil }
func (*desk) Request(_ context.Context, _ sdk.PermissionCheck, r sdk.PermissionRequest) (sdk.PermissionRequest, error) {
	return r, nil
}
func (*desk) Record(context.Context, sdk.GrantRecord) error { return nil }
func (*desk) Cleanup(context.Context, string) error         { return nil }

// only is a catalog of one agent.
type only struct{ *runner.Agent }

func (o only) Current(string) (*runner.Agent, bool) { return o.Agent, true }
func (o only) Version(context.Context, string, string) (*runner.Agent, error) {
	return o.Agent, nil
}

// nowhere is where events go that nobody reads.
type nowhere struct{}

func (nowhere) Publish(context.Context, string, wire.Event) error          { return nil }
func (nowhere) Restore(context.Context, string, wire.Event) error          { return nil }
func (nowhere) Published(context.Context, string) (bool, error)            { return false, nil }
func (nowhere) Purged(context.Context) (int64, error)                      { return 0, nil }
func (nowhere) ArmTimer(context.Context, string, wire.RunKey, int64) error { return nil }
func (nowhere) Live(wire.Live)                                             {}
func (nowhere) Wake(string, wire.RunKey)                                   {}

// still is an Env whose clock stands still.
type still struct{ issued *atomic.Int64 }

func (still) Now() int64                                 { return now }
func (still) Sleep(context.Context, time.Duration) error { return nil }
func (e still) Random() string                           { return strconv.FormatInt(e.issued.Add(1), 32) }

func (still) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (still) Parallel(fs ...func()) {
	for _, f := range fs {
		f()
	}
}

func (still) Beat(f func(), _ time.Duration, _ func() bool) { f() }

// worker returns a runner that has the agent.
func (d *desk) worker() *runner.Runner {
	return runner.New(runner.Options{
		Store: memory.New(), Publisher: nowhere{}, Env: still{&atomic.Int64{}}, Catalog: only{d.agent()},
		Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
}

// process handles a message with data that is sent to an address of a run, until the run waits.
func process(tb testing.TB, r *runner.Runner, run string, to wire.Address, data string) {
	tb.Helper()
	to.Agent, to.Run = wire.NameToken("desk"), wire.NewRunKey(run)
	v := r.Process(tb.Context(), &runner.Message{
		Address: to, Run: run, Delivered: 1, Received: now, Cause: core.Cause{Stream: string(to.Kind), Sequence: 1, EventID: run},
		Event: wire.Event{ID: run, Source: "web", Type: "shop.desk", Subject: run, Data: json.RawMessage(data)},
	})
	if v != (runner.Verdict{}) {
		tb.Fatalf("a message to %+v is settled with %+v", to, v)
	}
}

func journal(t *testing.T, r *runner.Runner, run string) []core.Entry {
	t.Helper()
	entries, err := r.Journal(t.Context(), wire.NewRunKey(run))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

var starts = wire.Address{Kind: wire.KindStart, Who: "ann"}

// TestReply_IsDecidedOnce lets a reply be planned, ruled on, shown to hooks and opened: each call is validated and checked once.
func TestReply_IsDecidedOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(10, "lookup", "book_ask", "cancel_deny", "inline", "inline_ask", "inline_deny")
	r := d.worker()
	process(t, r, "order 7", starts, `{}`)
	for _, tool := range d.tools {
		if d.validated[tool] != 1 || d.checked[tool] != 1 {
			t.Errorf("%s was validated %d times and checked %d times, want once each", tool, d.validated[tool], d.checked[tool])
		}
		waits := slices.Contains([]string{"lookup", "book_ask", "inline_ask"}, tool)
		if (d.suspended[tool] == 1) != waits {
			t.Errorf("hooks were told %d times that %s waits; it does: %t", d.suspended[tool], tool, waits)
		}
	}
	entries := journal(t, r, "order 7")
	last := entries[len(entries)-1]
	if last.Head.Status != core.StatusWaiting || len(entries[1].Requests) != 2 || len(entries[1].Results) != 2 {
		t.Errorf("the run is %s, with %d requests and %d calls denied; want waiting, 2 and 2",
			last.Head.Status, len(entries[1].Requests), len(entries[1].Results))
	}
}

// TestEdit_IsDecidedOnce has an approver edit the arguments of a held call: they are validated once, and checked when it is decided and when the call
// is made.
func TestEdit_IsDecidedOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(10, "book_ask")
	r := d.worker()
	process(t, r, "order 7", starts, `{}`)
	request := journal(t, r, "order 7")[1].Requests[0]
	process(t, r, "order 7", wire.Address{Kind: wire.KindIn, Who: "bob", Call: wire.CallAddress{
		Domain: wire.DomainToken(sdk.HumanDomain), Type: wire.NameToken(sdk.TypePermissionRequest), Agent: wire.NameToken("desk"),
		Run: wire.NewRunKey("order 7"), Call: request.ID,
	}}, `{"text": "y"}`)
	if d.validated["book_ask"] != 2 || d.checked["book_ask"] != 3 {
		t.Errorf("validated %d times and checked %d times, want 2 and 3: the model's arguments, and twice the approver's",
			d.validated["book_ask"], d.checked["book_ask"])
	}
	e := journal(t, r, "order 7")[2]
	if len(e.Edits) != 1 || string(e.Edits[0].Args) != `{"text":"y"}` || e.Decisions[0].Refused != "" {
		t.Errorf("edits %s, decisions %+v", e.Edits, e.Decisions)
	}
}

// BenchmarkReply is one run up to the reply that calls eight services with arguments of 2 KB each, on which a policy rules.
func BenchmarkReply(b *testing.B) {
	d := newDesk(2<<10, "a", "b", "c", "d", "e", "f", "g", "h")
	r := d.worker()
	for i := 0; b.Loop(); i++ {
		process(b, r, strconv.Itoa(i), starts, `{}`)
	}
	b.ReportMetric(float64(d.validated["a"])/float64(b.N), "validations/call")
}

package core_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/sdk"
)

// withContext is any agent that has services asked for context.
func withContext(t *rapid.T) *core.Spec {
	spec := randomSpec(t)
	for _, section := range [][]string{{"planning"}, {"retrieval"}, {"planning", "retrieval"}}[pick(t, 3, "sections")] {
		p := core.ContextProvider{
			Section: section, Service: service(section, 30*second), Once: pick(t, 2, "once") == 0, Required: pick(t, 4, "required") == 0,
		}
		p.Service.Agent = pick(t, 4, "agent") == 0
		p.Service.Retry = core.Retry{Attempts: 1 + pick(t, 3, "attempts"), Pause: second, Longest: 10 * second}
		switch pick(t, 8, "gone") {
		case 0:
			p.Gone = &sdk.Error{Code: sdk.CodeContractMissing, Message: "gone"}
		case 1:
			p.Service.Validate = func(string) (json.RawMessage, []sdk.Fault) {
				return nil, []sdk.Fault{{Path: "$", Expected: "other data"}}
			}
		}
		spec.Contexts = append(spec.Contexts, p)
	}
	return spec
}

// asked is what the oracle knows of a context provider: how often it was asked for the model call that is next and in all,
// without what was given up, and the call that it answered last.
type asked struct {
	now, ever int
	call      string
}

// context checks that each model call is made with the answers that it has to be made with, and with no others.
func (o *oracle) context(before *core.Head, e *core.Entry) {
	for _, in := range e.Head.Informed {
		known := o.asked[in.Section]
		if known == nil {
			known = &asked{}
			o.asked[in.Section] = known
		}
		if known.call != in.Call {
			known.now, known.ever, known.call = known.now+1, known.ever+1, in.Call
		}
	}
	for _, p := range o.rig.spec.Contexts {
		known := o.asked[p.Section]
		switch {
		case e.Head.Turns == before.Turns:
			continue
		case before.Cancel != nil: // a reply that came when the run was to end
			if known != nil {
				known.now = 0
			}
			continue
		case known == nil:
			o.Fatalf("entry %d: the model was called without %s", e.Rev, p.Section)
		case p.Once && known.ever != 1 || !p.Once && known.now != 1:
			o.Fatalf("entry %d: %s was asked for %d times, %d of them for this model call", e.Rev, p.Section, known.ever, known.now)
		}
		known.now = 0
	}
	for _, section := range o.rig.state.Context {
		o.contextText(section)
	}
}

func (o *oracle) contextText(section sdk.Section) {
	result, ok := o.results[o.asked[section.Name].call]
	switch {
	case !ok:
		o.Fatalf("the text of %s is %q, which nobody answered", section.Name, section.Text)
	case result.Error && !strings.HasPrefix(section.Text, "This is missing"):
		o.Fatalf("the text of %s is %q, but its provider failed", section.Name, section.Text)
	case !result.Error && section.Text != string(result.Data):
		o.Fatalf("the text of %s is %q, want %s", section.Name, section.Text, result.Data)
	}
}

// inquire is the question to context providers.
func (x *explorer) inquire() core.Event {
	question, err := core.ContextQuestion(&x.rig.state)
	if err != nil {
		x.Fatal(err)
	}
	if x.pick(8, "too late") == 0 {
		x.rig.now = max(x.rig.now, x.rig.state.Deadline)
		x.fire()
	}
	return core.Inquired{Question: question}
}

// TestContextQuestion_IsBounded asks with a conversation that is larger than a question may be.
func TestContextQuestion_IsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec(inline("add", false)))
	long := strings.Repeat("é", 40_000)
	if _, _, err := r.step(r.deliver("init-1", started("order 7", long))); err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		arguments := fmt.Sprintf(`{"n":%d,"text":%q}`, i, long)
		if _, _, err := r.step(r.drive(r.replied("I add.", sdk.ToolRequest{Name: "add", Arguments: arguments}))); err != nil {
			t.Fatal(err)
		}
		next, ok := r.next().(core.RunTools)
		if !ok {
			t.Fatalf("next is %T", r.next())
		}
		result := core.Result{Call: next.Run[0].ID, Kind: core.ResultInline, Data: json.RawMessage(fmt.Sprintf("%q", long))}
		if _, _, err := r.step(r.drive(core.Returned{Results: []core.Result{result}})); err != nil {
			t.Fatal(err)
		}
	}
	data, err := core.ContextQuestion(&r.state)
	if err != nil {
		t.Fatal(err)
	}
	var question struct {
		Task     string
		Messages []struct{ Role, Tool, Text string }
	}
	if err := json.Unmarshal(data, &question); err != nil {
		t.Fatal(err)
	}
	if len(question.Messages) != 8 || len(data) > 64<<10 || !strings.HasSuffix(question.Task, "é…") {
		t.Errorf("%d messages in %d bytes, the task ends with %q", len(question.Messages), len(data), question.Task[len(question.Task)-8:])
	}
	last := question.Messages[7]
	if last.Role != "tool" || last.Tool != "add" || !strings.HasPrefix(last.Text, `"é`) {
		t.Errorf("the last message is %.40q of %s %s", last.Text, last.Role, last.Tool)
	}
}

// gated is what hooks and the policy make of calls that people have allowed, or whose turn has come.
func (x *explorer) gated(calls []core.Call) core.Event {
	var ev core.Returned
	for _, c := range calls {
		held := x.held[c.ID] != ""
		if c.Kind != core.CallService || held && x.allowed[c.ID] == 0 || !held && !x.rig.spec.Sequential {
			x.Fatalf("call %+v is ruled on once more", c)
		}
		if x.pick(3, "gate") > 0 {
			ev.Passed = append(ev.Passed, c.ID)
			continue
		}
		ev.Results = append(ev.Results, core.Result{
			Call: c.ID, Kind: core.ResultBlocked, Data: json.RawMessage(`{"error":{"code":"blocked"}}`), Error: x.pick(2, "blocks") == 0,
		})
	}
	return ev
}

package runner_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// large is a text of 200 KB, of which stores take two in one entry.
var large = strings.Repeat("words of a report ", 200_000/18)

// An entry that no store takes as a whole is stored in parts, whatever makes it large: what services are asked about an output, each the
// same, or what hooks have to say of calls that wait. It is read as it was written, and older versions leave it alone.
func TestEntry_IsStoredInParts(t *testing.T) {
	t.Parallel()
	gates, notes := newTalk(t, sdk.ModelReply{Text: large}), newTalk(t, sdk.ModelReply{Calls: []sdk.ToolRequest{
		{Name: "lookup", Arguments: `{"n":1}`}, {Name: "lookup", Arguments: `{"n":2}`}, {Name: "lookup", Arguments: `{"n":3}`},
	}})
	for i := range 3 {
		gates.agent.Core.Contexts = append(gates.agent.Core.Contexts, core.ContextProvider{
			Section: fmt.Sprint("answer:gate", i), Required: true, Gate: &core.AnswerGate{Name: fmt.Sprint("gate", i), Most: 2},
			Service: core.Tool{Name: "review", Kind: core.CallService, Type: "shop.review", Validate: newDesk(0).validate("review")},
		})
	}
	notes.agent.Core.Reviews, notes.agent.Core.Hooked = true, true
	notes.agent.Phases = []sdk.Hook{{Name: "watch", AfterToolExecute: func(context.Context, sdk.ToolOutcome) (sdk.ToolEffects, error) {
		return sdk.ToolEffects{Messages: []string{large}}, nil
	}}}
	for name, c := range map[string]struct {
		talk  *talk
		texts func(*core.Entry) (bytes int)
	}{
		"inquiries": {gates, func(e *core.Entry) (bytes int) {
			for _, q := range e.Inquiries {
				bytes += strings.Count(string(q.Data), large) * len(large)
			}
			return bytes
		}},
		"notes": {notes, func(e *core.Entry) (bytes int) {
			for _, n := range e.Notes {
				bytes += len(n.Text)
			}
			return bytes
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.talk.worker()
			process(t, r, "order 7", starts, `{}`)
			entries := journal(t, r, "order 7")
			last := &entries[len(entries)-1]
			if c.talk.asked != 1 || last.Head.Status != core.StatusWaiting || len(last.Head.Calls) != 3 {
				t.Fatalf("the model was asked %d times, and the run is %s (%s) with %d calls", c.talk.asked, last.Head.Status, last.Head.Termination(), len(last.Head.Calls))
			}
			if got := c.texts(last); got != 3*len(large) {
				t.Errorf("its %s have %d bytes of text, want %d", name, got, 3*len(large))
			}
			if last.V != 10 || last.Head.V != 10 {
				t.Errorf("the entry has layout %d, and the run %d, want 10", last.V, last.Head.V)
			}
		})
	}
}

// cramped is a store that takes entries of 8 KiB.
type cramped struct{ *memory.Store }

func (s cramped) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	if len(next.Data) > 8<<10 {
		return runner.Version{}, sdk.Errorf(sdk.CodeTooLarge, "entry %d has %d bytes", next.Rev, len(next.Data))
	}
	return s.Store.Append(ctx, run, base, next)
}

// A step that no store takes ends the run, which says why: the model is not asked for the same again.
func TestEntry_ThatIsTooLargeEndsTheRun(t *testing.T) {
	t.Parallel()
	a := newTalk(t, sdk.ModelReply{Text: large[:16<<10]})
	r := runner.New(runner.Options{
		Store: cramped{a.store}, Publisher: nowhere{}, Env: still{&issued}, Catalog: only{a.agent},
		Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
	process(t, r, "order 7", starts, `{}`)
	entries := journal(t, r, "order 7")
	last := entries[len(entries)-1]
	if a.asked != 1 || last.Head.Termination() != "error:too_large" {
		t.Errorf("the model was asked %d times, and the run ends with %q", a.asked, last.Head.Termination())
	}
	if want := "what the run did next is too large to be stored: entry 2 has "; !strings.Contains(string(last.Terminal.Data), want) {
		t.Errorf("the run ends with %.200s, want %q", last.Terminal.Data, want)
	}
}

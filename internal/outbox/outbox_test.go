package outbox_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

var desk = &core.Spec{
	Name: "travel.desk", Type: "travel.desk", OutputType: "travel.desk.done", ErrorSchema: "#/travel/desk/0.0.0",
}

// TestGoldens compares what is published, byte for byte, with what testdata has: it follows from docs/wire.md, and was not
// made by this package. Archives have one of
//
//	entry        entries of a journal; the effects of the last one are carried out
//	delivered    a subject and an event on it, of which the outcome is published
//
// and published, the subjects and events in order.
func TestGoldens(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			g := parse(t, file)
			var have strings.Builder
			for _, m := range g.published(t) {
				have.WriteString(m.Subject + "\n" + encode(t, m.Event) + "\n")
			}
			if diff := cmp.Diff(strings.Split(g.want, "\n"), strings.Split(have.String(), "\n")); diff != "" {
				t.Errorf("-golden +published:\n%s", diff)
			}
		})
	}
}

// golden is an archive.
type golden struct {
	entries      []*core.Entry
	conversation []sdk.Message
	address      wire.Address
	event        wire.Event
	outcome      []string
	want         string
}

func parse(t *testing.T, file string) golden {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	for _, f := range archive.Files {
		switch f.Name {
		case "entry":
			e := &core.Entry{}
			decode(t, f.Data, e)
			g.entries = append(g.entries, e)
		case "conversation":
			decode(t, f.Data, &g.conversation)
		case "delivered":
			subject, event, _ := strings.Cut(string(f.Data), "\n")
			if g.address, err = wire.DefaultSubjects().Parse(subject); err != nil {
				t.Fatal(err)
			}
			decode(t, []byte(event), &g.event)
		case "outcome":
			g.outcome = strings.SplitN(strings.TrimSpace(string(f.Data)), " ", 3)
		case "published":
			g.want = string(f.Data)
		default:
			t.Fatalf("%s is not a part of a golden", f.Name)
		}
	}
	return g
}

func (g golden) published(t *testing.T) []outbox.Message {
	t.Helper()
	if len(g.entries) == 0 {
		return []outbox.Message{g.of(t)}
	}
	var all []outbox.Message
	last := g.entries[len(g.entries)-1]
	for _, f := range last.Effects {
		all = append(all, g.effect(t, last, f)...)
	}
	return all
}

// of is what the outcome of a delivered event publishes.
func (g golden) of(t *testing.T) outbox.Message {
	t.Helper()
	s := wire.DefaultSubjects()
	var m outbox.Message
	var err error
	switch g.outcome[0] {
	case "refused":
		m, err = outbox.Refusal(s, desk, g.address, g.event, sdk.Errorf(sdk.Code(g.outcome[1]), "%s", g.outcome[2]))
	case "unknown":
		m, err = outbox.RefusalUnknown(s, g.address, g.event)
	case "withdrawn":
		m, err = outbox.Withdrawn(s, g.address.Call, g.event, g.outcome[1], g.outcome[2])
	case "voided":
		m = outbox.Void(s, g.address.Call, g.event)
	default:
		t.Fatalf("nothing comes to be %s", g.outcome[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// effect is what an effect of the last entry publishes.
func (g golden) effect(t *testing.T, e *core.Entry, f core.Effect) []outbox.Message {
	t.Helper()
	s := wire.DefaultSubjects()
	switch f.Kind {
	case core.EffectCall:
		calls, err := outbox.Calls(s, e, f, g.opened(e, f))
		if err != nil {
			t.Fatal(err)
		}
		return calls
	case core.EffectVoid:
		return outbox.Voids(s, e, f)
	case core.EffectAnswer:
		answer, err := outbox.Answer(s, e, f)
		if err != nil {
			t.Fatal(err)
		}
		return []outbox.Message{answer}
	case core.EffectTerminal:
		terminal, omitted, err := outbox.Terminal(s, desk, e, g.conversation)
		if err != nil || omitted != nil {
			t.Fatal(err, omitted)
		}
		return []outbox.Message{terminal}
	case core.EffectTimer, core.EffectGrant, core.EffectCleanup, core.EffectRunEnd, core.EffectPark:
	}
	return nil
}

func (g golden) opened(e *core.Entry, f core.Effect) *core.Entry {
	for _, o := range g.entries {
		if o.Rev == f.Opened {
			return o
		}
	}
	return e
}

// TestVoid_IsTheRunsOwn: whoever knows only a call publishes the bytes that its run publishes when it gives the call up.
func TestVoid_IsTheRunsOwn(t *testing.T) {
	t.Parallel()
	s := wire.DefaultSubjects()
	for _, name := range []string{"call", "call_again", "call_edited", "people", "turn", "permission_escalated"} {
		g := parse(t, filepath.Join("testdata", name+".txtar"))
		e := g.entries[len(g.entries)-1]
		later := *e
		later.Rev, later.At, later.Head.Units, later.Head.Calls = e.Rev+3, e.At+5000, 9, nil
		for _, f := range e.Effects {
			if f.Kind != core.EffectCall {
				continue
			}
			own := outbox.Voids(s, &later, core.Effect{
				Kind: core.EffectVoid, Call: f.Call, Attempt: f.Attempt, Type: f.Type, Domains: f.Domains,
			})
			for i, call := range g.effect(t, e, f) {
				address, err := s.Parse(call.Subject)
				if err != nil {
					t.Fatal(err)
				}
				var stored wire.Event
				decode(t, []byte(encode(t, call.Event)), &stored)
				void := outbox.Void(s, address.Call, stored)
				if void.Subject != own[i].Subject || encode(t, void.Event) != encode(t, own[i].Event) {
					t.Errorf("%s: from the call\n%s\n%s\nand from the run\n%s\n%s",
						name, void.Subject, encode(t, void.Event), own[i].Subject, encode(t, own[i].Event))
				}
			}
		}
	}
}

func TestCalls_RefuseAnEntryWithoutTheData(t *testing.T) {
	t.Parallel()
	s := wire.DefaultSubjects()
	e := &core.Entry{Rev: 4}
	for name, c := range map[string]struct {
		f      core.Effect
		opened core.Entry
		want   string
	}{
		"nothing": {core.Effect{Call: "c1"}, core.Entry{Rev: 2}, "call c1 in entry 2: the entry has no data of it"},
		"another call": {
			core.Effect{Call: "c1"},
			entryWith(core.Change{Edits: []core.Edit{{Call: "c2", Args: json.RawMessage(`{}`)}}}),
			"call c1 in entry 2: the entry has no data of it",
		},
		"a text that is not said to a person": {
			core.Effect{Call: "c1", Type: "shop.book"},
			entryWith(core.Change{Messages: []sdk.Message{sdk.Text(sdk.RoleAssistant, "hi")}}),
			"call c1 in entry 2: the entry has no data of it",
		},
		"arguments that take no subject": {
			core.Effect{Call: "c1", ParentSubject: true},
			entryWith(core.Change{Edits: []core.Edit{{Call: "c1", Args: json.RawMessage(`7`)}}}),
			"call c1 in entry 2: put parentSubject$$ into an object: ",
		},
	} {
		_, err := outbox.Calls(s, e, c.f, &c.opened)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func entryWith(c core.Change) core.Entry { return core.Entry{Rev: 2, Change: c} }

func TestTerminal_RefusesAnEntryThatDoesNotEndItsRun(t *testing.T) {
	t.Parallel()
	_, _, err := outbox.Terminal(wire.DefaultSubjects(), desk, &core.Entry{Rev: 4}, nil)
	if err == nil || !strings.Contains(err.Error(), "entry 4") {
		t.Errorf("%v", err)
	}
}

// TestTerminal_LeavesOutAConversationThatNoEventHolds publishes what it would publish without one.
func TestTerminal_LeavesOutAConversationThatNoEventHolds(t *testing.T) {
	t.Parallel()
	g := parse(t, "testdata/terminal_conversation.txtar")
	e := g.entries[0]
	large := []sdk.Message{sdk.Text(sdk.RoleUser, strings.Repeat("a", wire.MaxData))}
	m, omitted, err := outbox.Terminal(wire.DefaultSubjects(), desk, e, large)
	if err != nil || !errors.Is(omitted, &sdk.Error{Code: sdk.CodeTooLarge}) {
		t.Fatalf("%v, left out because of %v", err, omitted)
	}
	if ev := encode(t, m.Event); !strings.Contains(ev, `"data":{"response":"<ok>"},`) {
		t.Errorf("the event is %.300s", ev)
	}
}

func encode(t *testing.T, ev wire.Event) string {
	t.Helper()
	data, err := ev.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v in %.200s", err, data)
	}
}

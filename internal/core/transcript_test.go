package core_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"agentd/internal/core"
	"agentd/internal/milestone"
	"agentd/sdk"
	"agentd/sdk/wire"
)

var (
	update = flag.Bool("update", false, "write what the transcripts in testdata say now")
	joint  = flag.Bool("joint", false, "with record: write answers and the replies to them as one entry")
	record = flag.String("record", "", "write the journals of the transcripts to this folder, for test/replay")
)

// TestTranscripts plays the stories in testdata (testdata/README.md).
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, transcript := play(t, archive, *joint)
			if *record != "" {
				save(t, r, strings.TrimSuffix(filepath.Base(file), ".txtar"))
			}
			sections := []txtar.File{
				{Name: "agent", Data: section(archive, "agent")},
				{Name: "inputs", Data: section(archive, "inputs")},
				{Name: "transcript", Data: transcript},
				{Name: "history", Data: history(t, r)},
			}
			have := txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: sections})
			if *update {
				if err := os.WriteFile(file, have, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(txtar.Format(archive)), string(have)); diff != "" && !*update {
				t.Errorf("-recorded +now (go test -run TestTranscripts -update writes it):\n%s", diff)
			}
		})
	}
}

// save writes the journal, one entry a line, and its blobs.
func save(t *testing.T, r *rig, name string) {
	t.Helper()
	files := map[string][]byte{name + ".jsonl": append(bytes.Join(r.lines, []byte("\n")), '\n')}
	for digest, content := range r.blobs {
		files[filepath.Join("blobs", digest)] = content
	}
	for file, content := range files {
		file = filepath.Join(*record, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// play lets the inputs of a transcript happen and tells what they did.
func play(t *testing.T, a *txtar.Archive, joins bool) (*rig, []byte) {
	t.Helper()
	agent := string(section(a, "agent"))
	s := &script{T: t, rig: newRig(parseAgent(t, agent)), policy: parsePolicy(t, agent)}
	s.joins = joins
	if slices.Contains(lines(agent), "blobs") {
		s.blobs = map[string][]byte{}
	}
	p := &printer{rig: s.rig}
	defer func() {
		if t.Failed() {
			t.Logf("so far:\n%s", p)
		}
	}()
	for _, line := range lines(string(section(a, "inputs"))) {
		p.printf("> %s\n", line)
		in, ok := s.input(line)
		if !ok {
			continue
		}
		_, entry, err := s.step(in)
		if err != nil {
			p.printf("  refused: %v\n", err)
			continue
		}
		p.entry(entry)
	}
	return s.rig, p.Bytes()
}

// history is the conversation in the end, one message a line.
func history(t *testing.T, r *rig) []byte {
	var b bytes.Buffer
	for _, m := range r.state.Messages() {
		fmt.Fprintln(&b, encode(t, m))
	}
	return b.Bytes()
}

// printer writes entries in a compact form: call ids without their hash, times as offsets from the beginning.
type printer struct {
	bytes.Buffer
	rig *rig
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

func (p *printer) entry(e *core.Entry) {
	p.printf("  %d %s %s", e.Rev, e.Kind, offset(e.At))
	for _, c := range e.Checkpoints {
		p.printf(" %s", c)
	}
	p.printf("\n")
	for _, m := range e.Messages {
		p.message(m)
	}
	for _, r := range e.Results {
		p.result(r)
	}
	for _, n := range e.Notes {
		p.printf("    note %s %s\n", n.ID, n.Text)
	}
	for _, b := range e.Blobs {
		p.printf("    blob of %s, %d bytes\n", b.Section, b.Size)
	}
	for _, name := range e.Dropped {
		p.printf("    dropped %s\n", name)
	}
	for _, r := range e.Requests {
		p.printf("    request %s %s\n", short(r.ID), r.Data)
	}
	for _, d := range e.Decisions {
		p.decision(d)
	}
	for _, a := range e.Asks {
		p.printf("    ask %s for %s %s, keeps %s\n", short(a.ID), short(a.Call), a.Data, a.State)
	}
	for _, q := range e.Inquiries {
		p.printf("    inquiry %s for %s %s\n", short(q.ID), q.Section, q.Data)
	}
	for _, edit := range e.Edits {
		p.printf("    edit %s %s\n", short(edit.Call), edit.Args)
	}
	for _, f := range e.Effects {
		p.effect("effect", f)
	}
	if e.Terminal != nil {
		p.printf("    terminal %s %s %s\n", e.Terminal.Type, e.Terminal.Schema, e.Terminal.Data)
	}
	for _, m := range milestone.Of(e) {
		p.printf("    live (%d,%d) %s %s\n", m.Revision, m.Index, m.Type, m.Data)
	}
	p.head(&e.Head)
	for _, section := range p.rig.state.Context {
		p.printf("    context %s: %s\n", section.Name, section.Text)
	}
	for _, f := range core.Outstanding(&e.Head) {
		f.Opened = f.Rev
		p.effect("awaits", f.Effect)
	}
	p.printf("    next %s\n", p.next())
}

func (p *printer) message(m sdk.Message) {
	for _, c := range m.Content {
		p.printf("    %s: ", m.Role)
		switch c.Kind {
		case sdk.ContentText:
			p.printf("%s\n", c.Text)
		case sdk.ContentToolUse:
			p.printf("use %s %s %s\n", short(c.CallID), c.Tool, c.Args)
		case sdk.ContentToolResult:
			if c.Pending {
				p.printf("pending %s %s\n", short(c.CallID), c.Tool)
				continue
			}
			p.printf("result of %s %s, error %t\n", short(c.CallID), c.Tool, c.IsError)
		case sdk.ContentMedia, sdk.ContentThinking, sdk.ContentRedacted:
			p.printf("%s\n", c.Kind)
		}
	}
}

func (p *printer) result(r core.Result) {
	p.printf("    %s of %s %s", r.Kind, short(r.Call), r.Data)
	if r.Event != "" {
		p.printf(" from %s", r.Source)
	}
	if r.Who != "" {
		p.printf(" by %s", r.Who)
	}
	if r.Error {
		p.printf(" (error)")
	}
	p.printf("\n")
}

func (p *printer) decision(d core.Decision) {
	p.printf("    decision on %s: %s", short(d.Call), d.Decision)
	for _, part := range []struct{ name, value string }{
		{"scope", string(d.Scope)}, {"by", d.Who}, {"because", d.Reason}, {"covered by", short(d.Grant)}, {"refused:", d.Refused},
	} {
		if part.value != "" {
			p.printf(" %s %s", part.name, part.value)
		}
	}
	p.printf("\n")
}

func (p *printer) effect(what string, f core.Effect) {
	p.printf("    %s %s", what, f.Kind)
	if f.Call != "" {
		p.printf(" %s", short(f.Call))
	}
	if f.Attempt > 0 {
		p.printf(" attempt %d", f.Attempt)
	}
	if f.Opened > 0 {
		p.printf(" of entry %d", f.Opened)
	}
	if f.Type != "" {
		p.printf(" to %s in %q", f.Type, f.Lanes())
	}
	if f.Due > 0 {
		p.printf(" %s", offset(f.Due))
	}
	p.printf("\n")
}

func (p *printer) head(h *core.Head) {
	p.printf("    head %s", h.Status)
	if h.Reason != "" {
		p.printf(": %s", h.Reason)
		if h.V > 1 {
			p.printf(" (%s)", h.ReasonCode)
		}
	}
	if d := h.Driver; d != nil {
		p.printf(" by %s fence %d takeovers %d", d.Owner, h.Fence, d.Takeovers)
		if d.Alone {
			p.printf(" alone after %d deaths", d.Deaths)
		}
	}
	if h.Cancel != nil {
		p.printf(", to end: %s", h.Cancel.Reason)
	}
	if k := h.Parked; k != nil {
		p.printf(", parked (%s, try %d since %s) until %s", k.Why, k.Tries, offset(k.Since), offset(max(k.Until, epoch)))
	}
	if h.Paused != nil {
		p.printf(", paused: %s", h.Paused.Reason)
	}
	if h.Stop != "" {
		p.printf(", stops on %s", short(h.Stop))
	}
	p.printf(", %d interactions, %s, %s units\n", h.Turns, h.Lifecycle, h.Units)
	if h.V > 1 {
		p.counters(h)
	}
	for _, u := range h.Undo {
		p.printf("    undo %s %s by %s: %s %s\n", short(u.Call), u.Tool, short(u.By), u.Outcome, u.Message)
	}
	for _, c := range h.Calls {
		p.printf("    call %s %s %s", short(c.ID), c.Kind, c.Status)
		if c.Due > 0 {
			p.printf(" until %s", offset(c.Due))
		}
		if c.Begun != "" {
			p.printf(" begun by %s", c.Begun)
		}
		if c.Held != "" {
			p.printf(" held")
		}
		if c.Asked != "" {
			p.printf(" asked %s", short(c.Asked))
		}
		if c.Queued {
			p.printf(" queued")
		}
		if c.Reserved > 0 {
			p.printf(" reserves %d tokens", c.Reserved)
		}
		p.printf("\n")
	}
}

// counters are what the loop is controlled by.
func (p *printer) counters(h *core.Head) {
	if h.Budget > 0 {
		p.printf("    tokens %d of %d used, %d by others\n", h.TokensUsed(), h.Budget, h.Delegated)
	}
	if h.Children > 0 {
		p.printf("    %d agents called\n", h.Children)
	}
	if c := h.Progress; c.Failed > 0 || c.Same > 0 || c.Reminders > 0 || len(c.Rounds) > 0 {
		p.printf("    counts failed %d, same %d %q, reminders %d, rounds %v\n", c.Failed, c.Same, c.Fault, c.Reminders, c.Rounds)
	}
	if h.Answers.Empty > 0 || h.Nudge != "" {
		p.printf("    empty %d, nudge %q\n", h.Answers.Empty, h.Nudge)
	}
	p.guarded(&h.Guarded)
	if len(h.Notes) > 0 || h.Review {
		p.printf("    to be said %v, urgent %t, review %t\n", h.Notes, h.Urgent, h.Review)
	}
}

func (p *printer) next() string {
	switch next := p.rig.next().(type) {
	case core.CallModel:
		return "call the model"
	case core.Undo:
		return "undo " + short(next.Call.Call)
	case core.AskContext:
		return "ask for context"
	case core.RunTools:
		if len(next.Judge) > 0 {
			return "ask hooks about " + ids(next.Judge)
		}
		return "run " + ids(next.Run) + ", begin " + ids(next.Begin) + ", lost " + ids(next.Lost)
	case core.Review:
		return "review the round"
	case core.BuildOutput:
		return "build the output of " + p.rig.state.StopText()
	case core.Park:
		return "let go"
	case core.End:
		return "end: " + string(next.Ending.Reason)
	case core.Rest:
		return "rest"
	}
	return "?"
}

func ids(calls []core.Call) string {
	list := []string{}
	for _, c := range calls {
		list = append(list, short(c.ID))
	}
	return "[" + strings.Join(list, " ") + "]"
}

// short is a call id without its hash.
func short(id string) string {
	if ref, ok := wire.ParseCallRef(id); ok {
		return fmt.Sprintf("c%d-%d", ref.Step, ref.Index)
	}
	return id
}

// guarded is what guards count.
func (p *printer) guarded(g *core.Guarded) {
	for _, f := range g.Failing {
		p.printf("    %s failed in %d rounds, withdrawn: %q\n", f.Tool, f.Rounds, f.Reason)
	}
	for _, k := range g.Known {
		p.printf("    %s is known since %s\n", short(k.Call), offset(k.At))
	}
	if g.Errors > 0 || g.Repeated > 0 || g.Concludes {
		p.printf("    rounds that failed %d, that repeated %d, concludes %t\n", g.Errors, g.Repeated, g.Concludes)
	}
}

package core_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/sdk"
)

const lifecycleDoc = "../../docs/lifecycle.md"

// TestLifecycleDoc_ShowsTheTables compares the generated parts of docs/lifecycle.md with the tables that Step obeys, and the
// functions of sdk.Hook; -update writes them.
func TestLifecycleDoc_ShowsTheTables(t *testing.T) {
	document, err := os.ReadFile(lifecycleDoc)
	if err != nil {
		t.Fatal(err)
	}
	have := string(document)
	for name, content := range map[string]string{
		"runs": diagram(core.RunMoves, core.StatusDone), "calls": diagram(core.CallMoves, core.CallSucceeded, core.CallFailed, core.CallCancelled), "phases": phaseTable(),
	} {
		begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(have, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no part %q", lifecycleDoc, name)
		}
		have = before + begin + content + end + after
	}
	if *update {
		if err := os.WriteFile(lifecycleDoc, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(document), have); diff != "" && !*update {
		t.Errorf("-document +code (go test -run TestLifecycleDoc -update writes it):\n%s", diff)
	}
}

// diagram is a table of moves as a Mermaid state diagram. lasts are the statuses that may stay what they are.
func diagram[S ~string](moves []core.Move[S], lasts ...S) string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, m := range moves {
		from := string(m.From)
		if from == "" {
			from = "[*]"
		}
		fmt.Fprintf(&b, "  %s --> %s: %s\n", from, m.To, m.When)
	}
	for _, last := range lasts {
		fmt.Fprintf(&b, "  %s --> [*]\n", last)
	}
	b.WriteString("```\n")
	return b.String()
}

// phaseTable lists the functions of a hook with what each may do: the fields of what it returns.
func phaseTable() string {
	var b strings.Builder
	b.WriteString("| phase | what a hook may do |\n| --- | --- |\n")
	hook := reflect.TypeFor[sdk.Hook]()
	for i := range hook.NumField() {
		field := hook.Field(i)
		if field.Type.Kind() != reflect.Func {
			continue
		}
		effects := "nothing: the run cannot be changed any more"
		if field.Type.NumOut() == 2 {
			effects = strings.Join(effectsOf(field.Type.Out(0)), ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", field.Name, effects)
	}
	return b.String()
}

func effectsOf(effects reflect.Type) []string {
	var names []string
	for i := range effects.NumField() {
		if field := effects.Field(i); field.Anonymous {
			names = append(names, effectsOf(field.Type)...)
		} else {
			names = append(names, "`"+field.Name+"`")
		}
	}
	return names
}

// TestMoves_AreThoseThatHappen sees that every change of status that random runs make is in the tables, by Step's own check, and
// that the tables have no more than docs/state_machine.md, which the histories prove.
func TestMoves_AreThoseThatHappen(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/state_machine.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for row := range table(string(document), "Calls") {
		from := row.from
		if from == "none" {
			from = ""
		}
		if from != row.to {
			seen[from+" "+row.to] = true
		}
	}
	listed := map[string]bool{}
	for _, m := range core.CallMoves {
		listed[string(m.From)+" "+string(m.To)] = true
	}
	// A tool that the end of its run interrupts has the status cancelled, and a result that says that its outcome is unknown.
	delete(seen, "running failed")
	delete(listed, "running failed")
	if diff := cmp.Diff(seen, listed); diff != "" {
		t.Errorf("-docs/state_machine.md +core.CallMoves:\n%s", diff)
	}
}

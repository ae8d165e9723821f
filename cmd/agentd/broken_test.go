package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"agentd/cmd/agentd/internal/cli"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// located begins a line that says what is wrong in a file, or is looked up elsewhere.
var located = regexp.MustCompile(`^(agentd\.yaml|refund\.yaml|mcp\.json):[1-9]\d*:[1-9]\d*: (warning: |registry: )?\S`)

// Each file of testdata/broken is a configuration with one slip of the pen; what agentd check says of it stands before the files. Every
// line has a place and says what is wrong there; the last one counts.
func TestCheck_SaysWhatIsWrongWhere(t *testing.T) {
	cases, err := filepath.Glob("testdata/broken/*.txtar")
	if err != nil || len(cases) < 29 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for i, name := range cases {
		if cases[i], err = filepath.Abs(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			for _, f := range archive.Files {
				if err := os.WriteFile(f.Name, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, problem output
			code := execute(t.Context(), []string{"check", "--config", "agentd.yaml"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &problem})
			if *update {
				archive.Comment = []byte(out.String())
				if err := os.WriteFile(name, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(archive.Comment), out.String()); diff != "" || problem.String() != "" {
				t.Errorf("agentd check (-want +got):\n%s%s", diff, problem.String())
			}
			lines, places := strings.Split(strings.TrimSpace(out.String()), "\n"), 0
			for _, line := range lines {
				if located.MatchString(line) {
					places++
				}
			}
			clean := strings.Contains(out.String(), "nothing wrong")
			if want := map[bool]int{true: cli.ExitOK, false: cli.ExitFindings}[clean]; code != want || places != len(lines)-1 || places == 0 {
				t.Errorf("it exits with %d and names %d places in\n%s", code, places, out.String())
			}
		})
	}
}

package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

func TestMayWrite_TakesPathsAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	c := &sdk.FileConstraints{Allow: []string{"src", "docs/*.md", "/srv/out"}, Deny: []string{"secrets", "*.key", "src/gen"}}
	for file, may := range map[string]bool{
		"src/a.go": true, "src": true, "./src/deep/a.go": true, "docs/a.md": true, "/srv/out/a": true, "src/../src/a": true,
		"docs/deep/a.md": false, "docs/a.txt": false, "a.go": false, "": false, "../src/a.go": false, "/src/a.go": false, "srcs/a": false,
		"src/../a.go": false, "src/secrets/a": false, "src/a.key": false, "src/gen/a": false, "src/x/../gen/a": false, "/srv/out/src/gen/a": false,
	} {
		if mayWrite(c, file) != may {
			t.Errorf("%q may be written: %t, want %t", file, !may, may)
		}
	}
	if open := (&sdk.FileConstraints{Deny: []string{"secrets"}}); !mayWrite(open, "/srv/a") || mayWrite(open, "/srv/secrets/a") {
		t.Error("want /srv/a, and not what is in /srv/secrets")
	}
}

func TestLines_AreThoseOfAllTexts(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]int{
		`"one"`: 1, `"one\n"`: 1, `"one\ntwo"`: 2, `""`: 0, `null`: 0, `7`: 0, `["a","b\nc"]`: 3, `[{"new":"a\nb\n","at":3}]`: 2,
	} {
		var value any
		if err := json.Unmarshal([]byte(content), &value); err != nil {
			t.Fatal(err)
		}
		if n := lines(value); n != want {
			t.Errorf("%s has %d lines, want %d", content, n, want)
		}
	}
}

func TestConstraints_TellEveryFault(t *testing.T) {
	t.Parallel()
	_, err := constraintHooks(sdk.AgentSpec{Constraints: &sdk.Constraints{
		Allow: []string{"[a"},
		Files: &sdk.FileConstraints{Writers: []sdk.FileWriter{{Tool: "w"}}, Most: sdk.MaxFiles + 1, Lines: 5, Deny: []string{"["}},
	}}, nil)
	if err == nil {
		t.Fatal("want faults")
	}
	for _, fault := range []string{
		`"[a" cannot be read as a pattern of tool names`, `"[" cannot be read as a pattern of paths`, "a writer needs a pattern",
		"the lines that w writes cannot be counted", "want at most 150 files",
	} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%v does not say %q", err, fault)
		}
	}
	if _, err := constraintHooks(sdk.AgentSpec{Constraints: &sdk.Constraints{Files: &sdk.FileConstraints{}}}, nil); err == nil {
		t.Error("want to be told which tools write")
	}
}

// Lists that name nothing would allow everything.
func TestConstraints_AreNotEmpty(t *testing.T) {
	t.Parallel()
	got := runConstraintFaults(&sdk.Constraints{Files: &sdk.FileConstraints{}})(&sdk.Constraints{
		Allow: []string{}, Deny: []string{}, Files: &sdk.FileConstraints{Allow: []string{}, Deny: []string{}},
	})
	want := []string{
		"allow is empty, and would constrain nothing: name what is allowed, or leave it out",
		"deny is empty, and would constrain nothing: name what is denied, or leave it out",
		"files: allow is empty, and would constrain nothing: name what is allowed, or leave it out",
		"files: deny is empty, and would constrain nothing: name what is denied, or leave it out",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/llm/mockllm"
)

// TestEval_GradesAModel: the table, the report for continuous integration, and the exit code, of a model that is right 3 times of 5.
func TestEval_GradesAModel(t *testing.T) {
	script, err := mockllm.ParseScript("script.yaml", []byte(`
conversations:
  - {match: {first: find 2, run: "#2"}, replies: [{text: "Yes."}]}
  - {match: {first: find 2, run: "#4"}, replies: [{text: "Yes."}]}
  - {match: {first: find 2}, replies: [{calls: [{name: find, arguments: {n: 2}}]}]}
  - {match: {first: hello}, replies: [{text: Hello.}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	model := httptest.NewServer(mockllm.New(script))
	t.Cleanup(model.Close)
	t.Chdir(t.TempDir())
	for name, value := range map[string]string{"OPENAI_API_KEY": "", "OPENAI_BASE_URL": model.URL + "/v1", "NATS_URL": "", "REDIS_URL": "", "AGENTD_STORE": ""} {
		t.Setenv(name, value)
	}
	cases := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(cases, []byte(`
tools: [{name: find, description: Find it.}]
cases:
  - {name: greeting, input: hello, expect: {calls: []}}
  - {name: find two, input: find 2, expect: {calls: [{tool: find, exact: {n: 2}}]}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		code := execute(t.Context(), append([]string{"eval"}, args...), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if code != want {
			t.Errorf("agentd eval %q exits with %d, want %d: %s%s", args, code, want, out.String(), errs.String())
		}
		return out.String() + errs.String()
	}
	const table = `     case           right  pass@1  pass^3
[✓]  shop/greeting  5/5    1.00    1.00
[✗]  shop/find two  3/5    0.60    0.10
     shop                  0.80    0.55

shop/find two
  try 2 answers before it calls find
  try 4 answers before it calls find

1 of 2 cases passed: at least 1.00 of pass^3
`
	if diff := cmp.Diff(table, run(cli.ExitFindings, cases, "--model", "m", "--junit", "report.xml")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	report, err := os.ReadFile("report.xml")
	if err != nil || !strings.Contains(string(report), `<testsuites tests="2" failures="1">`) {
		t.Errorf("the report: %v, %s", err, report)
	}
	run(0, cases, "--model", "m", "--k", "1", "--least", "0.6")
	if said := run(2, cases, "--model", "m", "--tries", "2", "--k", "3"); !strings.Contains(said, "--k: want 1 to 2, which is --tries, got 3") {
		t.Errorf("too great a k: %s", said)
	}
	if said := run(2, "nosuch.yaml", "--model", "m"); !strings.Contains(said, "nosuch.yaml") {
		t.Errorf("a file that is not there: %s", said)
	}
	if said := run(2, cases, "--agent", "desk"); !strings.Contains(said, "agentd.yaml is missing here") {
		t.Errorf("an agent without a configuration: %s", said)
	}
	write(t, "agentd.yaml", chat)
	if said := run(2, cases, "--agent", "chta"); !strings.Contains(said, `agentd.yaml has no agent "chta"; did you mean "chat"?`) {
		t.Errorf("an agent that is not there: %s", said)
	}
	write(t, "cases.yaml", "cases:\n  - {name: greeting, input: hello, expects: {calls: []}}\n")
	const want = "cases.yaml:2:5: missing key \"expect\"\ncases.yaml:2:36: unknown key \"expects\"; did you mean \"expect\"?\nagentd: 2 faults in cases.yaml\n"
	if diff := cmp.Diff(want, run(2, "cases.yaml", "--model", "m")); diff != "" {
		t.Errorf("cases with a slip of the pen (-want +got):\n%s", diff)
	}
}

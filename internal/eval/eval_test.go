package eval_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentd/internal/eval"
	"agentd/internal/llm"
	"agentd/internal/llm/mockllm"
	"agentd/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked is what a model that answers from a script makes of suites.
func asked(t *testing.T, script *mockllm.Script, suites []eval.Suite, o eval.Options) (*eval.Report, error) {
	t.Helper()
	server := httptest.NewServer(mockllm.New(script))
	t.Cleanup(server.Close)
	models, err := llm.New(llm.Config{Providers: []llm.ProviderConfig{{Name: "mock", BaseURL: server.URL + "/v1"}}, HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.Provider(sdk.ModelSpec{Provider: "mock", Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	o.Model, o.Parallel = "m", 4
	return eval.Evaluate(t.Context(), model, suites, o)
}

func shipped(t *testing.T) []eval.Suite {
	t.Helper()
	suites, err := eval.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	return suites
}

// passed are the cases that did, and how many there are.
func passed(r *eval.Report) (names []string, of int) {
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			if of++; c.Passed {
				names = append(names, s.Name+"/"+c.Name)
			}
		}
	}
	return names, of
}

// TestShipped_AModelThatIsRightPassesAll: the cases can be met.
func TestShipped_AModelThatIsRightPassesAll(t *testing.T) {
	t.Parallel()
	script, err := mockllm.LoadScript("testdata/right.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := asked(t, script, shipped(t), eval.Options{Tries: 2, K: 2, Least: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			for _, wrong := range c.Wrong() {
				t.Errorf("%s/%s: %s", s.Name, c.Name, wrong)
			}
		}
	}
	if names, of := passed(r); len(names) != 25 || of != 25 || !r.Passed() {
		t.Errorf("%d of %d cases passed, want 25", len(names), of)
	}
}

// TestShipped_AModelThatDoesNothingFails: but for what it is right not to do.
func TestShipped_AModelThatDoesNothingFails(t *testing.T) {
	t.Parallel()
	script := &mockllm.Script{Conversations: []mockllm.Conversation{{Replies: []mockllm.Reply{{Text: "I would rather not."}}}}}
	r, err := asked(t, script, shipped(t), eval.Options{Tries: 1, K: 1, Least: 1})
	if err != nil {
		t.Fatal(err)
	}
	names, of := passed(r)
	want := []string{"edges/a greeting needs no tool", "edges/no tool does it", "edges/talk of a call is not one"}
	if diff := cmp.Diff(want, names); diff != "" || of != 25 || r.Passed() {
		t.Errorf("of %d cases -want +passed:\n%s", of, diff)
	}
}

const shop = `
name: shop
tools:
  - {name: find, description: Find it., parameters: {type: object, properties: {n: {type: integer}}, required: [n]}}
  - {name: buy, description: Buy it., parameters: {type: object, properties: {n: {type: integer}}, required: [n]}}
cases:
  - name: find two
    input: find 2
    results: {find: {price: 7}}
    expect:
      calls: [{tool: find, exact: {n: 2}}]
      answer: {schema: {type: integer, minimum: 7}}
`

func suite(t *testing.T, text string) eval.Suite {
	t.Helper()
	s, err := eval.Parse("shop.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

func says(replies ...mockllm.Reply) *mockllm.Script {
	return &mockllm.Script{Conversations: []mockllm.Conversation{{Replies: replies}}}
}

func calls(pairs ...string) mockllm.Reply {
	var r mockllm.Reply
	for i := 0; i < len(pairs); i += 2 {
		r.Calls = append(r.Calls, mockllm.ReplyCall{Name: pairs[i], Arguments: mockllm.Arguments(pairs[i+1])})
	}
	return r
}

// TestEvaluate_SaysWhatIsWrong: of each try, in words.
func TestEvaluate_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	text := func(text string) mockllm.Reply { return mockllm.Reply{Text: text} }
	refused := says(mockllm.Reply{Faults: []mockllm.Fault{{Status: 400, Message: "no", Times: -1}}})
	for want, script := range map[string]*mockllm.Script{
		"":                                      says(calls("find", `{"n": 2.0}`), text(" 7 ")),
		"answers before it calls find":          says(text("7")),
		"calls buy, want find":                  says(calls("buy", `{"n":2}`)),
		"calls steal, want find":                says(calls("steal", `{"n":2}`)),
		`calls find with {"n":3}: want {"n":2}`: says(calls("find", `{"n":3}`)),
		`calls find with {"n":2: that is not JSON`:                          says(calls("find", `{"n":2`)),
		`calls find with {}: $.n: expected a value (required), got nothing`: says(calls("find", `{}`)),
		"calls buy, which is one call too many":                             says(calls("find", `{"n":2}`, "buy", `{"n":2}`)),
		"calls find, which is one call too many":                            says(calls("find", `{"n":2}`), calls("find", `{"n":2}`)),
		`answers "8.5": $: expected integer, got number 8.5`:                says(calls("find", `{"n":2}`), text("8.5")),

		"the model fails: ": refused,
	} {
		r, err := asked(t, script, []eval.Suite{suite(t, shop)}, eval.Options{Tries: 1, K: 1, Least: 1})
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		got := r.Suites[0].Cases[0].Faults[0]
		if got != want && (!strings.HasSuffix(want, ": ") || !strings.HasPrefix(got, want)) || r.Passed() != (want == "") {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestEvaluate_AModelThatCannotBeAskedIsAnError: no case is to blame.
func TestEvaluate_AModelThatCannotBeAskedIsAnError(t *testing.T) {
	t.Parallel()
	refuses := says(mockllm.Reply{Faults: []mockllm.Fault{{Status: 401, Message: "no such key", Times: -1}}})
	if r, err := asked(t, refuses, []eval.Suite{suite(t, shop)}, eval.Options{Tries: 3, K: 1}); err == nil || !strings.Contains(err.Error(), "ask model m") {
		t.Errorf("%v and %v", r, err)
	}
}

// TestParse_ListsEveryFault: with its place.
func TestParse_ListsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := eval.Parse("cases.yaml", []byte(`tools:
  - {name: find, description: Find it., parameters: {type: string}}
  - {name: find, description: Find it again.}
cases:
  - name: a
    input: b
    tools: [nosuch]
    results: {neither: {}}
    expect: {calls: [{tool: gone, when: args.n ==}, {tool: find, schema: {type: 7}}], answer: {when: 1 + 1}}
  - {name: a, input: b, expect: {calls: []}}
`))
	if err == nil {
		t.Fatal("no fault")
	}
	want := []string{
		`cases.yaml:2:53: parameters: expected a schema of objects: type "object" at its root, got {"type":"string"}`,
		`cases.yaml:3:5: there are two tools "find"; give each a name of its own`,
		`cases.yaml:7:13: tool "nosuch" does not exist; name one of tools`,
		`cases.yaml:8:14: tool "neither" does not exist; name one of tools`,
		`cases.yaml:9:22: tool "gone" does not exist; name one of tools`,
		`cases.yaml:9:41: "args.n ==" is not a CEL expression: column 10: Syntax error`,
		`cases.yaml:9:81: type: expected a value that fits one of the alternatives (anyOf), got number 7`,
		`cases.yaml:9:81: type: expected one of "array"`,
		`cases.yaml:9:102: "1 + 1" yields int, want true or false`,
		`cases.yaml:10:5: there are two cases "a"; give each a name of its own`,
	}
	got := strings.Split(err.Error(), "\n")
	for i := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("want fault %s", want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d faults, want %d:\n%s", len(got), len(want), err)
	}
}

// TestReport_JUnit: what continuous integration reads.
func TestReport_JUnit(t *testing.T) {
	t.Parallel()
	r := &eval.Report{Tries: 3, Suites: []eval.SuiteReport{{Name: "shop", Cases: []eval.CaseReport{
		{Name: "right", Right: 3, Passed: true, Faults: []string{"", "", ""}},
		{Name: "wrong", Right: 1, Faults: []string{"calls <b>", "", "answers \"\x01\""}},
	}}}}
	var b strings.Builder
	if err := r.WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	const want = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="2" failures="1">
  <testsuite name="shop" tests="2" failures="1">
    <testcase classname="shop" name="right"></testcase>
    <testcase classname="shop" name="wrong">
      <failure message="1 of 3 tries are right">&#xA;try 1 calls &lt;b&gt;&#xA;try 3 answers &#34;` + "\uFFFD" + `&#34;&#xA;</failure>
    </testcase>
  </testsuite>
</testsuites>
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

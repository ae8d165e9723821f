package seeds_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"agentd/internal/eval"
	"agentd/internal/llm"
	"agentd/internal/llm/mockllm"
	"agentd/sdk"
)

// evaluated are cases of each kind, with graders of each kind.
const evaluated = `
name: shop
tools:
  - {name: find, description: Find an article., parameters: {type: object, properties: {article: {type: string}}, required: [article]}}
  - {name: buy, description: Buy an article., parameters: {type: object, properties: {article: {type: string}, pieces: {type: integer}}, required: [article]}}
cases:
  - name: selection
    input: Is there a hat?
    expect: {calls: [{tool: find, exact: {article: hat}}]}
  - name: chain
    input: Find a hat and buy two.
    results: {find: {article: h-7}}
    expect:
      calls: [{tool: find, when: 'args.article == "hat"'}, {tool: buy, schema: {properties: {article: {const: h-7}, pieces: {const: 2}}, required: [pieces]}}]
      answer: {when: 'output.contains("h-7")'}
  - name: edge
    input: What is a hat?
    expect: {calls: []}
`

// behaviours are what models do in these cases, by their names. A number says in which tries: they end in it.
const behaviours = `
conversations:
  - match: {first: Is there a hat?, model: wrong tool}
    replies: [{calls: [{name: buy, arguments: {article: hat}}]}]
  - match: {first: Is there a hat?, model: wrong argument}
    replies: [{calls: [{name: find, arguments: {article: cap}}]}]
  - {match: {first: Is there a hat?, model: right 3 of 5, run: "#2"}, replies: [{text: "Yes."}]}
  - {match: {first: Is there a hat?, model: right 3 of 5, run: "#5"}, replies: [{text: "Yes."}]}
  - match: {first: What is a hat?, model: too eager}
    replies: [{calls: [{name: find, arguments: {article: hat}}]}]
  - match: {first: Find a hat and buy two., model: forgetful}
    replies: [{calls: [{name: find, arguments: {article: hat}}]}, {calls: [{name: buy, arguments: {article: hat, pieces: 2}}]}, {text: I bought h-7.}]
  - match: {first: Is there a hat?}
    replies: [{calls: [{name: find, arguments: {article: hat}}]}]
  - match: {first: Find a hat and buy two.}
    replies: [{calls: [{name: find, arguments: {article: hat}}]}, {calls: [{name: buy, arguments: {article: h-7, pieces: 2}}]}, {text: I bought two of h-7.}]
  - match: {first: What is a hat?}
    replies: [{text: It is worn on the head.}]
`

// evaluation is row L76: a model is asked several times to choose tools, to use what one returned for the next, and to leave tools alone.
// What it calls and answers is compared with what is expected. A model that is right now and then has a low estimate for several tries in a
// row, and fails like one that is wrong.
func evaluation(t *testing.T) {
	suite, err := eval.Parse("shop.yaml", []byte(evaluated))
	if err != nil {
		t.Fatal(err)
	}
	script, err := mockllm.ParseScript("script.yaml", []byte(behaviours))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(mockllm.New(script))
	t.Cleanup(server.Close)
	models, err := llm.New(llm.Config{Providers: []llm.ProviderConfig{{Name: "mock", BaseURL: server.URL + "/v1"}}, HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	const all = "selection 5 1.00 1.00, chain 5 1.00 1.00, edge 5 1.00 1.00"
	for name, want := range map[string]struct {
		cases, fault string
		wrong        int
	}{
		"right":          {all, "", 0},
		"wrong tool":     {"selection 0 0.00 0.00" + all[len("selection 5 1.00 1.00"):], "calls buy, want find", 5},
		"wrong argument": {"selection 0 0.00 0.00" + all[len("selection 5 1.00 1.00"):], `calls find with {"article":"cap"}: want {"article":"hat"}`, 5},
		"right 3 of 5":   {"selection 3 0.60 0.10" + all[len("selection 5 1.00 1.00"):], "answers before it calls find", 2}, // C(3,3)/C(5,3) is 1/10
		"too eager":      {"selection 5 1.00 1.00, chain 5 1.00 1.00, edge 0 0.00 0.00", "calls find, which is one call too many", 5},
		"forgetful":      {"selection 5 1.00 1.00, chain 0 0.00 0.00, edge 5 1.00 1.00", `calls buy with {"article":"hat","pieces":2}: $.article: expected "h-7", got string "hat"`, 5},
	} {
		t.Run(name, func(t *testing.T) {
			model, err := models.Provider(sdk.ModelSpec{Provider: "mock", Name: name})
			if err != nil {
				t.Fatal(err)
			}
			r, err := eval.Evaluate(t.Context(), model, []eval.Suite{*suite}, eval.Options{Model: name, Tries: 5, K: 3, Least: 1, Parallel: 5})
			if err != nil {
				t.Fatal(err)
			}
			var cases []string
			var wrong []string
			for _, c := range r.Suites[0].Cases {
				cases = append(cases, fmt.Sprintf("%s %d %.2f %.2f", c.Name, c.Right, c.Pass1, c.PassK))
				wrong = append(wrong, c.Wrong()...)
			}
			equal(t, "cases", strings.Join(cases, ", "), want.cases)
			equal(t, "passed", r.Passed(), want.fault == "")
			equal(t, "tries that are wrong", len(wrong), want.wrong)
			for _, line := range wrong {
				_, fault, _ := strings.Cut(strings.TrimPrefix(line, "try "), " ")
				equal(t, "fault", fault, want.fault)
			}
		})
	}
}

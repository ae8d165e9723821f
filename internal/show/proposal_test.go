package show_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/show"
	"agentd/sdk"
)

const reviewedPlan = `{"steps":[
	{"step":1,"text":"Find the orders of Ada\u202e\nand more","tool":"orders_find"},
	{"step":2,"text":"Make an invoice","tool":"invoice","after":[1],"each":"step1.orders","when":"size(step1.orders) > 3"}]}`

// A plan that people decide on is read step by step, and what nobody can see of it is written out.
func TestProposal_OfAPlan(t *testing.T) {
	t.Parallel()
	what, got := show.Proposal(sdk.ToolReviewPlan, json.RawMessage(reviewedPlan))
	want := `1. Find the orders of Ada\u202e\nand more
     with: orders_find
2. Make an invoice
     with: invoice
     after: 1
     for each of: step1.orders
     when: size(step1.orders) > 3`
	if diff := cmp.Diff([]string{"plan", want}, []string{what, got}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What steps would not show all of is shown as it is, and so is what another tool is called with.
func TestProposal_HidesNothing(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"another member":          `{"steps":[{"step":1,"text":"Find them","pay":"me"}]}`,
		"another member beside":   `{"steps":[{"step":1,"text":"Find them"}],"pay":"me"}`,
		"a member in two cases":   `{"steps":[{"step":1,"text":"Find them","Text":"Delete them"}]}`,
		"a number that is a text": `{"steps":[{"step":"1","text":"Find them"}]}`,
		"no steps":                `{"steps":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if what, text := show.Proposal(sdk.ToolReviewPlan, json.RawMessage(args)); what != "arguments" || text != show.VisibleJSON(json.RawMessage(args)) {
				t.Errorf("%s is shown as %s:\n%s", args, what, text)
			}
		})
	}
	if what, text := show.Proposal("pay", json.RawMessage(reviewedPlan)); what != "arguments" || !strings.Contains(text, `"tool": "invoice"`) {
		t.Errorf("arguments of another tool are shown as %s:\n%s", what, text)
	}
}

// An edited plan is compared step by step with what was proposed.
func TestDifference_OfPlans(t *testing.T) {
	t.Parallel()
	was := json.RawMessage(`{"steps":[{"step":1,"text":"Find the orders"},{"step":2,"text":"Pay them","each":"step1.orders"}]}`)
	is := json.RawMessage(`{"steps":[{"step":1,"text":"Find the orders"},{"step":2,"text":"Pay them","each":"step1.orders.filter(o, o.due)"},{"step":3,"text":"Tell Ada","after":[2]}]}`)
	want := `  1. Find the orders
  2. Pay them
-      for each of: step1.orders
+      for each of: step1.orders.filter(o, o.due)
+ 3. Tell Ada
+      after: 2
`
	if diff := cmp.Diff(want, show.Difference(sdk.ToolReviewPlan, was, is)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	hidden := json.RawMessage(`{"steps":[{"step":1,"text":"Find the orders","pay":"me"}]}`)
	if got := show.Difference(sdk.ToolReviewPlan, was, hidden); !strings.Contains(got, `+       "pay": "me"`) {
		t.Errorf("what steps do not show is not in the difference:\n%s", got)
	}
}

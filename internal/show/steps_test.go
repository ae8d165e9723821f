package show_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/show"
	"agentd/sdk"
)

// TestRunDetails_OfAPlan: a plan of ten steps, one of them for each of twenty elements, is read from top to bottom: what came of each step, and which
// elements have failed, with what they were called for.
func TestRunDetails_OfAPlan(t *testing.T) {
	t.Parallel()
	steps := []core.PlanStep{
		{Text: "Find the orders of May", Called: "orders_find", Status: core.StepDone},
		{
			Text: "Make an invoice for the order", Called: "invoice_make", After: []int{1}, Each: "step1.orders", Status: core.StepDone,
			Fault: "1 of 20 failed; element 7: unavailable: the printer does not answer",
		},
		{Text: "Send the invoices of step 2 to ada@example.org", Called: "mail_send", After: []int{2}, Status: core.StepDone},
		{Text: "Book the invoices in the ledger", Called: "ledger_book", After: []int{2}, Status: core.StepFailed, Fault: "conflict: the month is closed"},
		{Text: "Note the number of the entry in the ledger", After: []int{4}, Status: core.StepGivenUp, Fault: "step 4 is not done"},
		{
			Text: "Tell sales that there are many orders", After: []int{1}, When: "size(step1.orders) > 100", Status: core.StepSkipped,
			Fault: "its condition does not hold: size(step1.orders) > 100",
		},
		{Text: "Ask sales what to do about them", After: []int{6}, Status: core.StepSkipped, Fault: "step 6 was skipped"},
		{Text: "Get the weather in Paris", Called: "weather_get", Status: core.StepDone},
		{Text: "Plan the delivery", Called: "delivery_plan", After: []int{1, 8}, Status: core.StepCalling},
		{Text: "Tell the customers of the delivery", After: []int{9}, Each: "step9.customers", Status: core.StepPlanned},
	}
	d := show.RunDetails{Run: "order 7", Agent: "desk", Status: core.StatusWaiting, Plan: &core.Plan{Made: 1}}
	for i := range steps {
		steps[i].Number, steps[i].Plan = i+1, 1
	}
	for i := range 20 {
		call := fmt.Sprintf("c2-%d-x", i)
		e := core.Element{Status: core.StepDone, Call: call}
		args := sdk.Content{Kind: sdk.ContentToolUse, CallID: call, Tool: "invoice_make", Args: fmt.Appendf(nil, `{"order":%d}`, 9001+i)}
		result := sdk.Content{Kind: sdk.ContentToolResult, CallID: call, Tool: "invoice_make", Text: `{"invoice":1}`}
		if i == 6 {
			e.Status = core.StepFailed
			result.Text, result.IsError = `{"error":{"code":"unavailable","message":"the printer does not answer"}}`, true
		}
		steps[1].Elements = append(steps[1].Elements, e)
		d.Messages = append(d.Messages, sdk.Message{Content: []sdk.Content{args, result}})
	}
	d.Plan.Steps = steps
	want := ` of 10 steps: 4 done, 1 under way, 1 to do, 1 failed, 1 given up, 2 skipped
  [✓]  1. Find the orders of May (orders_find)
  [✓]  2. Make an invoice for the order (invoice_make), each of step1.orders: 19 of 20, after 1
           ✗ 7. {"order":9007} unavailable: the printer does not answer
  [✓]  3. Send the invoices of step 2 to ada@example.org (mail_send), after 2
  [✗]  4. Book the invoices in the ledger (ledger_book), after 2
           conflict: the month is closed
  [-]  5. Note the number of the entry in the ledger, after 4
           step 4 is not done
  [»]  6. Tell sales that there are many orders, after 1
           its condition does not hold: size(step1.orders) > 100
  [»]  7. Ask sales what to do about them, after 6
           step 6 was skipped
  [✓]  8. Get the weather in Paris (weather_get)
  […]  9. Plan the delivery (delivery_plan), after 1, 8
  [ ] 10. Tell the customers of the delivery, each of step9.customers, after 9
`
	wantPlan(t, d, want)
	d.Status = core.StatusDone
	for was, is := range map[string]string{
		"1 under way, 1 to do, 1 failed, 1 given up": "1 failed, 3 given up",
		"  […]  9. Plan the delivery (delivery_plan), after 1, 8\n": "  [-]  9. Plan the delivery (delivery_plan), after 1, 8\n" +
			"           the run ended while it was under way\n",
		"  [ ] 10. Tell the customers of the delivery, each of step9.customers, after 9\n": "  [-] 10. Tell the customers of the delivery, " +
			"each of step9.customers, after 9\n           the run ended before it\n",
	} {
		want = strings.Replace(want, was, is, 1)
	}
	wantPlan(t, d, want)
	if steps[8].Status != core.StepCalling {
		t.Error("a plan that was shown is another")
	}
}

// wantPlan compares what is shown of the plan of a run.
func wantPlan(t *testing.T, d show.RunDetails, want string) {
	t.Helper()
	var b strings.Builder
	if err := d.Write(&b, 160, false, func(args ...string) string { return strings.Join(args, " ") }); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "\nplan")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("of a run that is %s, -want +got:\n%s", d.Status, diff)
	}
}

// TestPlan_ThatNobodyApproved: a run that waits for an approval says so, and one that has ended says that none came.
func TestPlan_ThatNobodyApproved(t *testing.T) {
	t.Parallel()
	plan := &core.Plan{Phase: core.PhaseReview, Steps: []core.PlanStep{
		{Number: 1, Text: "Find it", Status: core.StepPlanned}, {Number: 2, Text: "Mend it", Status: core.StepPlanned},
	}}
	for status, want := range map[core.Status]string{
		core.StatusWaiting: "plan of 2 steps, to be approved: 2 to do\n  [ ]  1. Find it\n  [ ]  2. Mend it",
		core.StatusDone: "plan of 2 steps, never approved: 2 given up\n  [-]  1. Find it\n           the run ended before it\n" +
			"  [-]  2. Mend it\n           the run ended before it",
	} {
		if diff := cmp.Diff(want, show.Plan(&core.Head{Status: status, Plan: plan})); diff != "" {
			t.Errorf("of a run that is %s, -want +got:\n%s", status, diff)
		}
	}
}

package sdktest_test

import (
	"fmt"

	"agentd/sdk/client"
	"agentd/sdk/sdktest"
)

// A test of a clerk that asks before it pays, as it is deployed. In a test of yours, t is its *testing.T.
func Example() {
	t := newT("TestClerk")
	defer t.end()

	h := sdktest.Start(t, sdktest.Options{
		File: "../../test/outside/agentd.yaml",
		Model: sdktest.Script(
			sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})),
			sdktest.Ask(sdktest.Tool("pay_bill", map[string]int{"euros": 12})),
			sdktest.Say("Paid."),
		),
	})
	run := h.Run("clerk", map[string]string{"message": "Pay the bill."})
	h.Answer(run, client.Reply{Text: "The one of May."})
	h.Approve(run, "pay_bill", "ann")
	call := h.Call("bills.pay") // in the place of the service
	fmt.Println("it pays", call.Data()["euros"])
	h.Restart() // what is not stored is lost
	call.Answer("bills.pay.done", map[string]string{"receipt": "R-12"})

	var answer struct{ Response string }
	if err := h.Wait(run).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	fmt.Println("it answers:", answer.Response)
	h.NoDeadLetter()
	// Output:
	// it pays 12
	// it answers: Paid.
}

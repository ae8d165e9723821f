package planning

import (
	"encoding/json"
	"fmt"

	"agentd/internal/core"
)

// Form is how a planner is asked to write plans. What it writes is read in either form.
type Form struct {
	// Schema is that of the output that the planner is asked for; nil asks for text.
	Schema json.RawMessage
	// rules end those of the planner with the form and an example, and name is what the form is called.
	rules, name string
}

// CallsForm is for models that write calls into their text.
var CallsForm = &Form{name: "calls of plan.add_step", rules: `8. Write nothing but calls of plan.add_step, or one of plan.respond.

Form:
plan.add_step(step=1, tool="orders_find", text="Find the orders of the customer Ada Lovelace of May 2031")
plan.add_step(step=2, tool="weather", text="Get the weather in Paris on 3 June 2031")
plan.add_step(step=3, tool="mail_send", after=[1, 2], text="Send the orders of step 1 and the weather of step 2 to ada@example.org")
plan.add_step(step=4, tool="invoice", each="step1.orders", text="Make an invoice for the order")
plan.add_step(step=5, tool="notify", when="size(step1.orders) > 3", text="Tell sales that Ada Lovelace has many orders")
plan.respond(message="The answer, where no tool is needed")`}

// JSONForm is for all others: structured output.
var JSONForm = &Form{
	name: "a JSON object",
	rules: `8. Write nothing but a JSON object, with the steps, or with a response.

Form:
{"steps": [
  {"step": 1, "tool": "orders_find", "text": "Find the orders of the customer Ada Lovelace of May 2031"},
  {"step": 2, "tool": "weather", "text": "Get the weather in Paris on 3 June 2031"},
  {"step": 3, "tool": "mail_send", "after": [1, 2], "text": "Send the orders of step 1 and the weather of step 2 to ada@example.org"},
  {"step": 4, "tool": "invoice", "each": "step1.orders", "text": "Make an invoice for the order"},
  {"step": 5, "tool": "notify", "when": "size(step1.orders) > 3", "text": "Tell sales that Ada Lovelace has many orders"}
]}
{"response": "The answer, where no tool is needed"}`,
	Schema: json.RawMessage(`{
  "title": "plan",
  "type": "object",
  "properties": {
    "steps": ` + stepsSchema + `,
    "response": {"type": "string", "description": "The answer, where no tool is needed."}
  },
  "additionalProperties": false
}`),
}

// stepsSchema is the JSON Schema of the steps of a plan.
var stepsSchema = fmt.Sprintf(`{
      "type": "array", "minItems": 1, "maxItems": %d,
      "items": {
        "type": "object",
        "properties": {
          "step": {"type": "integer", "minimum": 1, "description": "Its number: the steps are numbered one after the other."},
          "text": {"type": "string", "minLength": 1, "description": "What is to be done."},
          "tool": {"type": "string", "description": "The tool or server that may do it."},
          "after": {"type": "array", "items": {"type": "integer", "minimum": 1}, "description": "The steps whose results it needs."},
          "when": {"type": "string", "description": "A condition in CEL, without which it is skipped."},
          "each": {"type": "string", "description": "A list in CEL, for each element of which it is done."}
        },
        "required": ["step", "text"],
        "additionalProperties": false
      }
    }`, core.MaxPlanSteps)

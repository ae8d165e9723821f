package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"agentd/internal/toolbox"
	"agentd/sdk"
)

// scenario is a kind of run: its name is the message that starts it, by which the model knows what to say.
type scenario struct {
	name   string
	weight int
	agent  string
	// turns are what the model says before it answers with a text. It says other arguments each time it is asked.
	turns []func(*rand.Rand) []sdk.ToolRequest
	// fails are the codes that a run may end with in place of an output.
	fails []sdk.Code
}

func scenarios() []scenario {
	one := func(names ...string) func(*rand.Rand) []sdk.ToolRequest {
		return func(r *rand.Rand) []sdk.ToolRequest { return requests(r, names) }
	}
	some := func(most int, names ...string) func(*rand.Rand) []sdk.ToolRequest {
		return func(r *rand.Rand) []sdk.ToolRequest {
			chosen := make([]string, 1+r.IntN(most))
			for i := range chosen {
				chosen[i] = names[r.IntN(len(names))]
			}
			return requests(r, chosen)
		}
	}
	turns := func(t ...func(*rand.Rand) []sdk.ToolRequest) []func(*rand.Rand) []sdk.ToolRequest { return t }
	return []scenario{
		{name: "services", weight: 6, agent: deskAgent, turns: turns(some(4, quoteTool, bookTool), one(bookTool))},
		{name: "tools", weight: 5, agent: deskAgent, turns: turns(one(addTool, chargeTool, addTool, chargeTool), one(chargeTool))},
		{name: "mixed", weight: 4, agent: deskAgent, turns: turns(some(5, addTool, chargeTool, quoteTool, bookTool))},
		{name: "family", weight: 3, agent: deskAgent, turns: turns(one(childTool, childTool, chargeTool))},
		{name: childScenario, agent: childAgent, turns: turns(some(3, quoteTool, chargeTool, addTool))},
		{name: "timeout", weight: 2, agent: deskAgent, turns: turns(one(idleTool, quoteTool), one(idleTool))},
		{name: "question", weight: 2, agent: deskAgent, turns: turns(one(toolbox.AskQuestion, bookTool))},
		{name: "gated", weight: 4, agent: deskAgent, turns: turns(one(transferTool, payTool, bookTool, transferTool), some(2, transferTool, payTool))},
		{name: "plan", weight: 5, agent: plannerAgent},
		{name: "wrong", weight: 1, agent: deskAgent, turns: turns(one("no_such_tool", addTool), one(bookTool))},
		{name: largeScenario, weight: 2, agent: deskAgent, turns: turns(one(addTool))},
		{name: cancelScenario, weight: 2, agent: deskAgent, turns: turns(one(childTool, longTool)), fails: []sdk.Code{sdk.CodeCancelled}},
		{name: "deadline", weight: 2, agent: hastyAgent, turns: turns(one(longTool)), fails: []sdk.Code{sdk.CodeDeadline}},
		{name: poisonScenario, weight: 0, agent: deskAgent, turns: turns(one(burnTool)), fails: []sdk.Code{sdk.CodePoison}},
		{name: amnesiaScenario, weight: 0, agent: deskAgent, turns: turns(one(longTool))},
	}
}

// The scenarios in which somebody has a special part.
const (
	childScenario   = "child"
	largeScenario   = "large"
	cancelScenario  = "cancel"
	poisonScenario  = "poison"
	amnesiaScenario = "amnesia"
)

func requests(r *rand.Rand, names []string) []sdk.ToolRequest {
	all := make([]sdk.ToolRequest, len(names))
	for i, name := range names {
		all[i] = sdk.ToolRequest{Name: name, Arguments: fmt.Sprintf(`{"n":%d}`, r.Uint32())}
		switch name {
		case childTool:
			all[i].Arguments = fmt.Sprintf(`{"message":%q,"n":%d}`, childScenario, r.Uint32())
		case toolbox.AskQuestion:
			all[i].Arguments = fmt.Sprintf(`{"question":"which of %d?"}`, r.Uint32())
		}
	}
	return all
}

// largeText makes an entry too large for the journal itself: it becomes a blob.
var largeText = strings.Repeat("a long answer ", 20_000)

// says is what the model says in a turn of a scenario. It is nondeterministic, as models are.
func (s *scenario) says(r *rand.Rand, turn int) reply {
	answer := reply{Latency: time.Duration(1+r.IntN(25)) * time.Millisecond}
	if r.IntN(25) == 0 {
		answer.Latency = time.Duration(300+r.IntN(2500)) * time.Millisecond // longer than leases and patience
	}
	switch {
	case turn < len(s.turns):
		answer.Calls = s.turns[turn](r)
	case s.name == largeScenario:
		answer.Text = fmt.Sprint(largeText, r.Uint32())
	default:
		answer.Text = fmt.Sprint("done ", r.Uint32())
	}
	return answer
}

// plan is what a planner says: steps that name the tool that they are to be done by, some of them for a list, on a condition, or after
// another one.
func plan(r *rand.Rand) string {
	tools := []string{quoteTool, bookTool, addTool, chargeTool, chargeTool, transferTool, payTool, idleTool}
	var text strings.Builder
	for i := range 1 + r.IntN(5) {
		fmt.Fprintf(&text, `plan.add_step(text="%s %d"`, tools[r.IntN(len(tools))], r.Uint32())
		if i > 0 && r.IntN(2) == 0 {
			text.WriteString(", after=[1]")
		}
		text.WriteString([]string{"", "", "", `, each="[1, 2, 3]"`, `, when="1 < 2"`, `, when="2 < 1"`}[r.IntN(6)])
		text.WriteString(")\n")
	}
	return text.String()
}

// routed is the call of a step.
func routed(r *rand.Rand, told string) []sdk.ToolRequest {
	tool, _, _ := strings.Cut(strings.TrimPrefix(told, "Step: "), " ")
	return requests(r, []string{tool})
}

// choose picks a scenario by weight.
func choose(r *rand.Rand, all []scenario) *scenario {
	total := 0
	for i := range all {
		total += all[i].weight
	}
	n := r.IntN(total)
	for i := range all {
		if n -= all[i].weight; n < 0 {
			return &all[i]
		}
	}
	return &all[0]
}

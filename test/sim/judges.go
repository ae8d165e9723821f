package sim

import (
	"context"
	"slices"
	"strings"

	"agentd/internal/core"
	"agentd/internal/judge"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// judges sees that a text is not taken for an answer before it was sent back as often as judges may, whoever drove the run meanwhile.
type judges struct {
	*simulation
	// most is how often a text of an agent with judges is sent back, by the digest of its spec.
	most map[string]int
}

func newJudges(s *simulation) *judges { return &judges{simulation: s, most: map[string]int{}} }

// What judges object to, and a gate finds no answer without.
const (
	judgeName, objected = "vague", "then"
	gateName, wanted    = "complete", "done"
)

// judge gives an agent, now and then, a judge of its texts, and a gate of its outputs.
func (j *judges) judge(a *runner.Agent) {
	if j.pick(4) > 0 {
		return
	}
	most := 1 + j.pick(2)
	j.most[a.Core.Digest] = most
	a.Core.Judged = true
	a.Judge = func(r judge.Reply) []core.Objection {
		if !strings.Contains(r.Text, objected) {
			return nil
		}
		return []core.Objection{{Judge: judgeName, Found: objected, Nudge: "Say what then.", Most: most}}
	}
	if a.Core.Converse || j.pick(2) == 0 {
		return
	}
	required := j.pick(2) == 0
	a.CheckOutput = func(_ context.Context, in sdk.RequirementInput) ([]core.Objection, error) {
		if strings.Contains(string(in.Output), wanted) {
			return nil, nil
		}
		return []core.Objection{{Judge: gateName, Found: "it is vague", Nudge: "Be complete.", Most: 1, Required: required}}, nil
	}
}

// committed sees that the head counts what the journal tells, and that no answer is one that a judge objects to and has not let pass.
func (j *judges) committed(key wire.RunKey, e *core.Entry) {
	most, judged := j.most[e.Head.Spec]
	if !judged || e.Kind != core.KindReplied {
		return
	}
	h, told := &e.Head, e.Judged
	if told != nil && !told.Accepted && h.Status != core.StatusDone && told.Judge != "empty" {
		counted := core.Refused{Judge: told.Judge, Times: told.Times}
		if told.Times > most || !slices.Contains(h.Answers.Refused, counted) {
			j.violate("I2", "run %s: entry %d sends a text back for %+v; the run counts %+v", key, e.Rev, told, h.Answers.Refused)
		}
	}
	answers := h.Reason == core.ReasonCompleted && h.ReasonCode == "answer" && strings.Contains(string(e.Terminal.Data), objected)
	if answers && (told == nil || !told.Accepted) {
		j.violate("I2", "run %s: entry %d takes %s for an answer, which its judge objects to", key, e.Rev, e.Terminal.Data)
	}
}

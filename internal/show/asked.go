package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// describeAsked tells of what a run asks beside its model's calls: a section of the prompt of a service, and for an inline tool
// something of a person.
func (r *watched) describeAsked(l wire.Live) (label, text string) {
	var d struct {
		Section  string          `json:"section"`
		Call     string          `json:"call"`
		Question string          `json:"question"`
		Asked    json.RawMessage `json:"asked"`
		Answer   json.RawMessage `json:"answer"`
		Error    bool            `json:"error"`
	}
	if err := json.Unmarshal(l.Data, &d); err != nil {
		return l.Type, string(l.Data)
	}
	switch l.Type {
	case core.MilestoneInquired:
		r.tools[d.Call] = d.Section
		return "context", d.Section + " is asked for"
	case core.MilestoneInformed:
		delete(r.tools, d.Call)
		if d.Error {
			return LabelError, d.Section + " " + string(d.Answer)
		}
		return "context", d.Section + ": " + cmp.Or(strings.TrimSpace(field(d.Answer, "text")), string(d.Answer))
	case core.MilestoneAsked:
		return labelAsks, cmp.Or(field(d.Asked, "question"), string(d.Asked))
	}
	if d.Error {
		return LabelError, string(d.Answer)
	}
	return labelAnswer, cmp.Or(field(d.Answer, AnswerField), string(d.Answer))
}

// describePlan says how far a plan is, and what is done now.
func describePlan(data json.RawMessage) string {
	var d struct {
		Plan struct {
			Goal  string `json:"goal"`
			Steps []struct {
				Description string `json:"description"`
				Completed   bool   `json:"completed"`
			} `json:"steps"`
			Current int `json:"current"`
		} `json:"plan"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return string(data)
	}
	completed := 0
	for _, s := range d.Plan.Steps {
		if s.Completed {
			completed++
		}
	}
	text := fmt.Sprintf("%d of %s done", completed, Count(len(d.Plan.Steps), "step"))
	if i := d.Plan.Current; i > 0 && i <= len(d.Plan.Steps) {
		return text + ", now: " + d.Plan.Steps[i-1].Description
	}
	return text + ": " + d.Plan.Goal
}

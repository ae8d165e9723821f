package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/core"
	"agentd/internal/requests"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// milestoneData is the union of what milestones hold.
type milestoneData struct {
	Input   json.RawMessage `json:"input"`
	Text    string          `json:"text"`
	Message string          `json:"message"`
	Call    string          `json:"call"`
	Tool    string          `json:"tool"`
	Args    json.RawMessage `json:"args"`
	Kind    core.ResultKind `json:"kind"`
	Data    json.RawMessage `json:"data"`
	Error   bool            `json:"error"`
	Reason  core.Reason     `json:"reason"`
	Code    string          `json:"code"`
	Limit   string          `json:"limit"`
	Class   string          `json:"class"`
	Note    string          `json:"note"`
	Who     string          `json:"who"`
	Type    string          `json:"type"`
	// Why, Model, Since and Until are of a run that is parked, and Message is why.
	Why   core.ParkReason `json:"why"`
	Model string          `json:"model"`
	Since int64           `json:"since"`
	Until int64           `json:"until"`
	// Judge, Found and Times are of an answer that was judged.
	Judge string `json:"judge"`
	Found string `json:"found"`
	Times int    `json:"times"`
	// Guard is what a guard of calls did.
	Guard core.Guard `json:"guard"`
	// Messages, Lined and Evicted are of a history that was shortened.
	Messages int `json:"messages"`
	Lined    int `json:"lined"`
	Evicted  int `json:"evicted"`
	// By, Tools and Degraded are of a choice of tools.
	By       sdk.SelectedBy `json:"by"`
	Tools    []string       `json:"tools"`
	Degraded string         `json:"degraded"`
	// Asked and Decision are of permissions.
	Request  string                `json:"request"`
	Asked    sdk.PermissionRequest `json:"asked"`
	Decision core.Decision         `json:"decision"`
}

// planTools are called with plans, which are told by themselves.
var planTools = map[string]bool{sdk.ToolUpdatePlan: true, sdk.ToolReviewPlan: true}

// describe is a milestone in words. The label is empty for what is not to be shown.
func (r *watched) describe(l wire.Live, quiet map[string]bool) (label, text string) {
	held := r.held
	r.held = l.Type == wire.MilestoneParked || l.Type == wire.MilestonePaused || l.Type == wire.MilestoneSuspended
	switch l.Type {
	case wire.MilestoneUsage, wire.MilestoneCheckpoint, wire.MilestoneCleared:
		return "", ""
	case wire.MilestonePlan:
		return labelPlan, describePlan(l.Data)
	case wire.MilestonePlanned, wire.MilestoneUnplanned, wire.MilestoneStep, wire.MilestoneStepEnded:
		return describeSteps(l)
	case wire.MilestoneInquired, wire.MilestoneInformed, wire.MilestoneAsked, wire.MilestoneAnswered:
		return r.describeAsked(l)
	case wire.MilestoneSuspended:
		if held {
			return "", ""
		}
		return r.describeSuspended(l.Data, quiet)
	}
	var d milestoneData
	if err := json.Unmarshal(l.Data, &d); err != nil {
		return l.Type, string(l.Data)
	}
	switch l.Type {
	case wire.MilestoneCall, wire.MilestoneResult, wire.MilestoneRequested, wire.MilestoneDecided, wire.MilestoneTurn, wire.MilestoneAnswer:
		return r.describeCall(l.Type, d, quiet)
	case wire.MilestoneReply, wire.MilestoneCorrected, wire.MilestoneReminded, wire.MilestoneJudged, wire.MilestoneGuarded:
		return describeReply(l.Type, d)
	case wire.MilestoneCompacted:
		return "shortened", fmt.Sprintf("to the model, a summary stands for %d messages, and results of %d more have one line: about %d tokens fewer",
			d.Messages, max(d.Lined-d.Messages, 0), d.Evicted)
	case wire.MilestoneChosen:
		return "tools", describeChoice(d)
	case wire.MilestoneParked:
		p := core.Parking{Why: d.Why, Model: d.Model, Message: d.Message, Since: d.Since, Until: d.Until}
		return LabelWaits, cmp.Or(parkedBecause(&p, l.Time), "its time has come")
	case wire.MilestoneFinished:
		return describeEnd(d)
	}
	if label, text := describeRun(l.Type, d); label != "" {
		return label, text
	}
	return l.Type, string(l.Data)
}

// describeCall is what becomes of calls, of tools and of people.
func (r *watched) describeCall(milestone string, d milestoneData, quiet map[string]bool) (label, text string) {
	switch milestone {
	case wire.MilestoneCall:
		r.tools[d.Call] = d.Tool
		if quiet[d.Tool] || planTools[d.Tool] {
			return "", ""
		}
		if d.Tool == toolbox.AskQuestion {
			return labelAsks, cmp.Or(field(d.Args, "question"), string(d.Args))
		}
		return "calls", d.Tool + " " + string(d.Args)
	case wire.MilestoneResult:
		return r.describeResult(d)
	case wire.MilestoneRequested:
		what := "permission for " + d.Asked.Tool
		if d.Asked.Tool == sdk.ToolReviewPlan {
			what = "approval of the plan"
		}
		return labelAsks, what + ": " + r.commandLine("approvals", "show", requests.ShortID(d.Request))
	case wire.MilestoneDecided:
		return describeDecision(d.Decision, d.Args)
	case wire.MilestoneTurn:
		if quiet[Turn] {
			return "", ""
		}
		return labelAsks, d.Message
	}
	return labelAnswer, cmp.Or(d.Message, "(ends the conversation)")
}

func (r *watched) commandLine(args ...string) string {
	if r.command == nil {
		return "agentd " + strings.Join(args, " ")
	}
	return r.command(args...)
}

// describeReply is what the model said, and what was done about it.
func describeReply(milestone string, d milestoneData) (label, text string) {
	switch milestone {
	case wire.MilestoneCorrected:
		return "corrected", strings.TrimPrefix(d.Note, "Note: ")
	case wire.MilestoneReminded:
		if d.Class != "" {
			return "reminded", "the reply's tool call could not be understood: " + d.Class
		}
		return "reminded", "the reply had no tool call"
	case wire.MilestoneJudged:
		return "judged", strings.TrimSpace(fmt.Sprintf("%s (%d) %s", d.Judge, d.Times, d.Found))
	case wire.MilestoneGuarded:
		return "guarded", describeGuard(d)
	}
	return "says", d.Text
}

// describeChoice is how tools were chosen.
func describeChoice(d milestoneData) string {
	if d.Degraded != "" {
		return fmt.Sprintf("%d are offered, chosen by words, because embeddings cannot be had: %s", len(d.Tools), d.Degraded)
	}
	return fmt.Sprintf("%d are offered, chosen by %s", len(d.Tools), d.By)
}

// describeRun is what befell the run as a whole. The label is empty for what is not known here.
func describeRun(milestone string, d milestoneData) (label, text string) {
	switch milestone {
	case wire.MilestoneStarted:
		return "started", cmp.Or(field(d.Input, "message"), string(d.Input))
	case wire.MilestoneRetried:
		return "retried", by(d.Who)
	case wire.MilestoneUndoing:
		return "undoing", by(d.Who)
	case wire.MilestoneMessage:
		return "message", strings.TrimSpace(d.Message + " " + by(d.Who))
	case wire.MilestonePaused:
		return "paused", string(d.Reason)
	case wire.MilestoneResumed:
		return "resumed", ""
	case wire.MilestoneExhausted:
		return "exhausted", "the limit of its " + d.Limit
	}
	return "", ""
}

// describeEnd is how a run has ended.
func describeEnd(d milestoneData) (label, text string) {
	problem, ok := wire.ProblemIn(d.Type, d.Data)
	switch {
	case !ok:
		return "finished", ReasonText(d.Reason, d.Code)
	case d.Reason == core.ReasonUndone:
		return "undone", problem.ErrorMessage
	}
	return "failed", problem.ErrorMessage
}

// describeGuard is what a guard of calls did.
func describeGuard(d milestoneData) string {
	switch d.Guard {
	case core.GuardHint:
		return "all calls fail; the model was told what to do about it"
	case core.GuardWithdraw:
		return "the tool " + d.Tool + " was withdrawn: " + string(d.Reason)
	case core.GuardRepeat:
		return "the call of " + d.Tool + " was answered from the result of an earlier one"
	case core.GuardConclude:
		return "the model repeats itself, and is asked for its final answer"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", d.Guard, d.Tool, d.Reason))
}

// by names who did something, where that is known.
func by(who string) string {
	if who == "" {
		return ""
	}
	return "(" + who + ")"
}

// describeDecision is what somebody decided, and with which arguments where they edited them, or what an earlier decision means.
func describeDecision(d core.Decision, edited json.RawMessage) (label, text string) {
	text = string(d.Decision)
	if d.Who != "" {
		text += " by " + d.Who
	}
	if len(edited) > 0 {
		text += ", with " + string(edited)
	}
	if why := cmp.Or(d.Refused, d.Reason); why != "" {
		text += ": " + why
	}
	switch {
	case d.Refused != "":
		return "refused", text
	case d.Grant != "":
		return "granted", text + ", as decided before"
	}
	return "decided", text
}

func (r *watched) describeResult(d milestoneData) (label, text string) {
	tool := cmp.Or(d.Tool, r.tools[d.Call], d.Call)
	delete(r.tools, d.Call)
	switch {
	case d.Error:
		return LabelError, tool + " " + string(d.Data)
	case planTools[tool]:
		return "", ""
	case tool == toolbox.AskQuestion:
		return labelAnswer, cmp.Or(field(d.Data, "answer"), string(d.Data))
	}
	return "result", tool + " " + string(d.Data)
}

func (r *watched) describeSuspended(data json.RawMessage, quiet map[string]bool) (label, text string) {
	var d struct {
		Calls int `json:"calls"`
	}
	if json.Unmarshal(data, &d) == nil && d.Calls == 0 {
		return "", "" // for its model, or for an operator, which was said
	}
	open := 0
	for _, tool := range r.tools {
		if !quiet[tool] {
			open++
		}
	}
	switch {
	case r.partial:
		return LabelWaits, "for answers"
	case open > 0:
		return LabelWaits, "for " + Count(open, "answer")
	case len(r.tools) > 0 || quiet[Turn]:
		return "", "" // the question itself is shown
	}
	return LabelWaits, "for the person"
}

// Turn stands for a conversation's turn among the names of tools: no tool has a name with a dot.
const Turn = sdk.TypeConversationTurn

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
	case wire.MilestoneInquired:
		r.tools[d.Call] = d.Section
		return "context", d.Section + " is asked for"
	case wire.MilestoneInformed:
		delete(r.tools, d.Call)
		if d.Error {
			return LabelError, d.Section + " " + string(d.Answer)
		}
		return "context", d.Section + ": " + cmp.Or(strings.TrimSpace(field(d.Answer, "text")), string(d.Answer))
	case wire.MilestoneAsked:
		return labelAsks, cmp.Or(field(d.Asked, "question"), string(d.Asked))
	}
	if d.Error {
		return LabelError, string(d.Answer)
	}
	return labelAnswer, cmp.Or(field(d.Answer, "answer"), string(d.Answer))
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

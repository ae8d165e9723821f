package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"agentd/internal/contracts"
	"agentd/internal/core"
	"agentd/internal/desk"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Labels of lines that are printed in several places.
const (
	labelAnswer = "answer"
	labelAsks   = "asks"
	LabelError  = "error"
	LabelWaits  = "waits"
)

// Properties of events.
const (
	AnswerField  = "answer"
	RunField     = "run"
	MessageField = "message"
)

// labelled is how many columns a line's label takes.
const labelled = 10

// Progress prints the milestones of runs, one line each and each once. Safe for concurrent use.
type Progress struct {
	mu sync.Mutex
	W  io.Writer
	// json prints each live event as it is.
	JSON bool
	// many says that several runs are shown, so that each line names its own.
	Many bool
	// full does not shorten.
	Full bool
	// terminal says that w is one, which can show what goes on between milestones.
	Terminal bool
	status   status
	// quiet are the tools whose calls are shown otherwise.
	Quiet map[string]bool
	runs  map[string]*watched
	// last is when the last live event came.
	last time.Time
}

// watched is what must be known of a run to show its next milestone.
type watched struct {
	rev   uint64
	index int
	// tools are the names of the calls without a result; those from before the first shown milestone are missing.
	tools   map[string]string
	partial bool
	// done is closed when the run's end was shown.
	done chan struct{}
}

func (p *Progress) run(name string) *watched {
	if p.runs == nil {
		p.runs = map[string]*watched{}
	}
	if p.runs[name] == nil {
		p.runs[name] = &watched{index: -1, tools: map[string]string{}, done: make(chan struct{})}
	}
	return p.runs[name]
}

// Ended is closed when the end of that run was shown.
func (p *Progress) Ended(run string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run(run).done
}

// Mark is the last milestone of that run that was shown.
func (p *Progress) Mark(run string) (revision uint64, index int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.run(run)
	return r.rev, r.index
}

// Seen reports whether anything of that run was shown.
func (p *Progress) Seen(run string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run(run).rev > 0
}

// LastEvent is when the last live event came; zero when none did.
func (p *Progress) LastEvent() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Show prints a live event, unless it was shown before.
func (p *Progress) Show(l wire.Live) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	if l.Ephemeral {
		if p.Terminal && !p.JSON && !p.Many {
			p.status.show(p, l)
		}
		return
	}
	p.status.clear(p)
	r := p.run(l.Run)
	if l.Revision < r.rev || (l.Revision == r.rev && l.Index <= r.index) {
		return
	}
	r.partial = r.partial || (r.rev == 0 && l.Revision > 1)
	r.rev, r.index = l.Revision, l.Index
	label, text := r.describe(l, p.Quiet)
	switch {
	case p.JSON:
		_ = json.NewEncoder(p.W).Encode(l) // nowhere else to show it
	case label != "":
		p.line(l, label, text)
	}
	if l.Type != core.MilestoneFinished {
		return
	}
	close(r.done)
	if p.Many {
		delete(p.runs, l.Run) // else a program that watches for months remembers all
	}
}

// Note prints a line of the command itself.
func (p *Progress) Note(label, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.JSON {
		p.status.clear(p)
		p.line(wire.Live{Time: time.Now().UnixMilli()}, label, text)
	}
}

// Ask prints a question whole: nobody can answer a part of one.
func (p *Progress) Ask(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.clear(p)
	label := labelAsks
	for _, line := range wrapped(desk.Visible(strings.TrimSpace(text), true), Columns(p.W)-labelled) {
		fmt.Fprintf(p.W, "%-9s %s\n", label, line)
		label = ""
	}
}

func (p *Progress) line(l wire.Live, label, text string) {
	prefix := ""
	if p.Many {
		prefix = fmt.Sprintf("%s  %-14s %-18s ", time.UnixMilli(l.Time).Format("15:04:05.000"), Clip(l.Agent, 14), Clip(l.Run, 18))
	}
	if !p.Full {
		text = Clip(text, fitting(p.W, utf8.RuneCountInString(prefix)+labelled))
	}
	text = desk.Visible(text, p.Full) // models wrote it
	fmt.Fprintf(p.W, "%s%-9s %s\n", prefix, label, text)
}

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
	Who     string          `json:"who"`
	Type    string          `json:"type"`
	// Asked and Decision are of permissions.
	Request  string                `json:"request"`
	Asked    sdk.PermissionRequest `json:"asked"`
	Decision core.Decision         `json:"decision"`
}

// describe is a milestone in words. The label is empty for what is not to be shown.
func (r *watched) describe(l wire.Live, quiet map[string]bool) (label, text string) {
	var d milestoneData
	switch l.Type {
	case core.MilestonePlan:
		return "plan", describePlan(l.Data)
	case core.MilestoneInquired, core.MilestoneInformed, core.MilestoneAsked, core.MilestoneAnswered:
		return r.describeAsked(l)
	}
	if err := json.Unmarshal(l.Data, &d); err != nil {
		return l.Type, string(l.Data)
	}
	switch l.Type {
	case core.MilestoneStarted:
		return "started", cmp.Or(field(d.Input, MessageField), string(d.Input))
	case core.MilestoneReply:
		return "says", d.Text
	case core.MilestoneCall:
		r.tools[d.Call] = d.Tool
		if quiet[d.Tool] || d.Tool == sdk.ToolUpdatePlan {
			return "", ""
		}
		if d.Tool == contracts.ToolAskQuestion {
			return labelAsks, cmp.Or(field(d.Args, "question"), string(d.Args))
		}
		return "calls", d.Tool + " " + string(d.Args)
	case core.MilestoneResult:
		return r.describeResult(d)
	case core.MilestoneRequested:
		return labelAsks, "permission for " + d.Asked.Tool + ": agentd approvals show " + desk.ShortID(d.Request)
	case core.MilestoneDecided:
		return describeDecision(d.Decision)
	case core.MilestoneTurn:
		if quiet[Turn] {
			return "", ""
		}
		return labelAsks, d.Message
	case core.MilestoneAnswer:
		return labelAnswer, cmp.Or(d.Message, "(ends the conversation)")
	case core.MilestoneMessage:
		return "message", strings.TrimSpace(d.Message + " " + by(d.Who))
	case core.MilestoneReminded:
		if d.Class != "" {
			return "reminded", "the reply's tool call could not be understood: " + d.Class
		}
		return "reminded", "the reply had no tool call"
	case core.MilestoneUsage, core.MilestoneCheckpoint:
		return "", ""
	case core.MilestoneSuspended:
		return r.describeSuspended(quiet)
	case core.MilestoneExhausted:
		return "exhausted", "the limit of its " + d.Limit
	case core.MilestoneFinished:
		if problem, ok := ProblemIn(d.Type, d.Data); ok {
			return "failed", problem.ErrorMessage
		}
		return "finished", reasonText(d.Reason, d.Code)
	}
	return l.Type, string(l.Data)
}

// by names who did something, where that is known.
func by(who string) string {
	if who == "" {
		return ""
	}
	return "(" + who + ")"
}

// describeDecision is what somebody decided, or what an earlier decision means.
func describeDecision(d core.Decision) (label, text string) {
	text = string(d.Decision)
	if d.Who != "" {
		text += " by " + d.Who
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
	tool := cmp.Or(r.tools[d.Call], d.Call)
	delete(r.tools, d.Call)
	switch {
	case d.Error:
		return LabelError, tool + " " + string(d.Data)
	case tool == sdk.ToolUpdatePlan:
		return "", "" // the plan itself is shown
	case tool == contracts.ToolAskQuestion:
		return labelAnswer, cmp.Or(field(d.Data, AnswerField), string(d.Data))
	}
	return "result", tool + " " + string(d.Data)
}

func (r *watched) describeSuspended(quiet map[string]bool) (label, text string) {
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

// ProblemIn returns the system error of a terminal event, if it is one.
func ProblemIn(eventType string, data json.RawMessage) (wire.Problem, bool) {
	var p wire.Problem
	if !strings.HasPrefix(eventType, "sys.") || !strings.HasSuffix(eventType, ".error") {
		return p, false
	}
	if err := json.Unmarshal(data, &p); err != nil {
		p.ErrorMessage = string(data)
	}
	return p, true
}

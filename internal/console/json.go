package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"agentd/internal/bulk"
	"agentd/internal/core"
	"agentd/internal/requests"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// programs begins the addresses under which programs get what pages show, as JSON.
const programs = "/api/v1"

// forPrograms reports whether JSON is asked for.
func forPrograms(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, programs+"/") }

// readable is what a page shows, for programs.
type readable interface{ forPrograms() any }

// data answers with what a page shows, or with why it cannot be shown.
func (c *console) data(p page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := context.WithTimeout(r.Context(), pageTimeout)
		defer stop()
		q := c.asking(w, r.WithContext(ctx))
		v, err := p(q)
		if err != nil {
			c.fail(w, q, err)
			return
		}
		c.answerJSON(w, cmp.Or(v.Status, http.StatusOK), v.Data.(readable).forPrograms()) // all pages that are served so are readable
	})
}

// problem answers a program with what is wrong.
func (c *console) problem(w http.ResponseWriter, status int, e *sdk.Error) {
	c.answerJSON(w, status, map[string]any{"error": wire.NewProblem(e)})
}

func (c *console) answerJSON(w http.ResponseWriter, status int, value any) {
	var b bytes.Buffer
	as := json.NewEncoder(&b)
	as.SetEscapeHTML(false) // entries are told as the journal has them, and no browser takes this for a page
	if err := as.Encode(value); err != nil {
		c.Logger.Error("what a page shows could not be told", "error", err)
		http.Error(w, "The answer could not be made; the log of the console says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", wire.ContentTypeJSON)
	w.WriteHeader(status)
	if _, err := b.WriteTo(w); err != nil {
		c.Logger.Debug("the answer could not be sent", "error", err)
	}
}

// excerpt is a text as a page shows it, and how many bytes more are in the journal.
type excerpt struct {
	Text string `json:"text"`
	Left int    `json:"left,omitempty"`
}

func excerptOf(f folded) excerpt { return excerpt{f.Start + f.Rest, f.Left} }

// emptied is a list of what is there: no null for programs.
func emptied[T any](list []T) []T { return append([]T{}, list...) }

func (p *overviewPage) forPrograms() any {
	return map[string]any{
		"counts": emptied(p.Counts), "requests": p.Asked, "dead_letters": p.Letters, "more_dead_letters": p.More, "waiting_longest": emptied(p.Oldest),
		"failed": emptied(p.Failed), "problems": emptied(p.Problems), "lacking": p.Lacking, "as_of": p.Behind.AsOf, "behind": p.Behind.Behind,
	}
}

func (p *runsPage) forPrograms() any {
	return map[string]any{
		"runs": emptied(p.Rows), "after": p.After, "lacking": p.Lacking, "as_of": p.Behind.AsOf, "behind": p.Behind.Behind,
	}
}

// runFacts are what all answers about a run begin with, by the names that agentd runs show has for them.
type runFacts struct {
	Run      string            `json:"run"`
	Agent    string            `json:"agent"`
	Status   core.Status       `json:"status"`
	Reason   core.Reason       `json:"reason,omitempty"`
	Code     string            `json:"reason_code,omitempty"`
	Revision uint64            `json:"rev"`
	Updated  int64             `json:"updated"`
	Deadline int64             `json:"deadline,omitempty"`
	Who      string            `json:"who,omitempty"`
	Spec     string            `json:"spec,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Parent   string            `json:"parent,omitempty"`
	Turns    int               `json:"interactions"`
	Usage    sdk.Usage         `json:"usage"`
	Parked   *core.Parking     `json:"parked,omitempty"`
	Paused   *core.Pause       `json:"paused,omitempty"`
	Purged   *core.Purged      `json:"purged,omitempty"`
	Waits    []waitsFor        `json:"waiting,omitempty"`
}

func (p *runHead) facts() runFacts {
	h := p.Head
	f := runFacts{
		Run: p.Run, Agent: p.Agent, Status: h.Status, Reason: h.Reason, Code: h.ReasonCode, Revision: p.Revision, Updated: p.Changed,
		Deadline: h.Deadline, Who: h.Init.Who, Spec: h.Spec, Tags: p.Tags, Turns: h.Turns, Usage: h.Usage,
		Parked: h.Parked, Paused: h.Paused, Purged: h.Purged, Waits: p.Waits,
	}
	if h.Init.DelegatedBy != nil {
		f.Parent = h.Init.DelegatedBy.Run
	}
	return f
}

// conversed is a message, or a call with its result.
type conversed struct {
	At       string   `json:"at"`
	Role     string   `json:"role"`
	Thinking bool     `json:"thinking,omitempty"`
	Said     *excerpt `json:"said,omitempty"`
	Call     *called  `json:"call,omitempty"`
}

type called struct {
	ID     string   `json:"id"`
	Tool   string   `json:"tool"`
	Args   excerpt  `json:"args"`
	Edited *excerpt `json:"edited,omitempty"`
	Denied string   `json:"denied,omitempty"`
	Result *excerpt `json:"result,omitempty"`
	Error  bool     `json:"error,omitempty"`
}

func conversedIn(m *message) conversed {
	told := conversed{At: markText(m.at), Role: m.Role, Thinking: m.Thinking}
	if m.Call == nil {
		said := excerptOf(m.Shown)
		told.Said = &said
		return told
	}
	c := m.Call
	told.Call = &called{ID: c.ID, Tool: c.Tool, Args: excerptOf(c.ShownArgs), Denied: c.Denied, Error: c.Error}
	if c.Edited != "" {
		edited := excerptOf(c.ShownEdit)
		told.Call.Edited = &edited
	}
	if c.Answered {
		result := excerptOf(c.ShownResult)
		told.Call.Result = &result
	}
	return told
}

func (p *conversationPage) forPrograms() any {
	told := struct {
		runFacts
		Plan     *core.Plan  `json:"plan,omitempty"`
		Messages []conversed `json:"messages"`
		// Before leads to what was said before, as ?before=.
		Before string    `json:"before,omitempty"`
		Unsaid []excerpt `json:"unsaid,omitempty"`
		Type   string    `json:"result_type,omitempty"`
		Result *excerpt  `json:"result,omitempty"`
	}{runFacts: p.facts(), Plan: p.Head.Plan, Messages: []conversed{}, Before: beforeIn(p.Earlier)}
	for i := range p.Messages {
		told.Messages = append(told.Messages, conversedIn(&p.Messages[i]))
	}
	for _, f := range p.Unsaid {
		told.Unsaid = append(told.Unsaid, excerptOf(f))
	}
	if p.Terminal != nil {
		result := excerptOf(p.Result)
		told.Type, told.Result = p.Terminal.Type, &result
	}
	return told
}

// beforeIn is the place that an address of what was before leads to; empty is that nothing was.
func beforeIn(address string) string { return strings.TrimPrefix(address, "?before=") }

func (p *timelinePage) forPrograms() any {
	return struct {
		runFacts
		Spans  []span `json:"spans"`
		Before string `json:"before,omitempty"`
	}{p.facts(), emptied(p.Spans), beforeIn(p.Earlier)}
}

func (p *journalPage) forPrograms() any {
	told := struct {
		runFacts
		Entries []show.JournalRow `json:"entries"`
		// Before leads to older entries, as ?before=; 0 is that there are none.
		Before uint64 `json:"before,omitempty"`
	}{runFacts: p.facts(), Entries: emptied(p.Rows)}
	if p.Older != "" {
		told.Before = p.First
	}
	return told
}

// change is a line that differs.
type change struct {
	Mark string `json:"mark"`
	Text string `json:"text"`
}

func (p *entryPage) forPrograms() any {
	changes := []change{}
	for _, line := range p.Difference {
		if line.Mark == "+" || line.Mark == "-" {
			changes = append(changes, change(line))
		}
	}
	return struct {
		Entry    json.RawMessage `json:"entry"`
		Previous uint64          `json:"previous,omitempty"`
		Next     uint64          `json:"next,omitempty"`
		Changes  []change        `json:"head_changes"`
	}{p.Raw, p.Previous, p.Next, changes}
}

func (p *statePage) forPrograms() any {
	return struct {
		Revision uint64     `json:"rev"`
		At       int64      `json:"at"`
		Head     *core.Head `json:"head"`
	}{p.Entry.Rev, p.Entry.At, &p.Entry.Head}
}

func (p *eventsPage) forPrograms() any {
	return struct {
		runFacts
		Events []happened `json:"events"`
		Before string     `json:"before,omitempty"`
	}{p.facts(), emptied(p.Lines), beforeIn(p.Earlier)}
}

func (p *lettersPage) forPrograms() any {
	return map[string]any{"dead_letters": emptied(p.Rows), "more": p.More}
}

func (p *letterPage) forPrograms() any { return p.LetterDetail }

func (p *bulkPage) forPrograms() any {
	jobs := []*bulk.Job{}
	for _, row := range p.Jobs {
		jobs = append(jobs, row.Job)
	}
	return map[string]any{"jobs": jobs}
}

func (p *jobPage) forPrograms() any {
	return struct {
		*bulk.Job
		// Orphan says that no program carries it out, although it is to go on, and Notable are runs that it was not done to.
		Orphan  bool          `json:"orphan,omitempty"`
		Notable []bulk.Result `json:"not_done"`
		Others  bool          `json:"more_not_done,omitempty"`
	}{p.Job, p.Orphan, emptied(p.Notable), p.Others}
}

func (p *inboxPage) forPrograms() any {
	items := []requests.Item{}
	for i := range p.Items {
		items = append(items, p.Items[i].Item)
	}
	return map[string]any{"requests": items, "omitted": p.Omitted}
}

func (p *requestPage) forPrograms() any {
	return struct {
		show.Request
		// Refusal says why nobody can decide it in the console, and NotYours why this user cannot.
		Refusal  string   `json:"refusal,omitempty"`
		NotYours string   `json:"not_yours,omitempty"`
		Seen     []string `json:"seen,omitempty"`
	}{p.Request, p.Refusal, p.NotYours, p.Seen}
}

func (p *closedPage) forPrograms() any {
	return struct {
		requests.Item
		// Closed is why it is not open any more.
		Closed    string          `json:"closed"`
		Decisions []core.Decision `json:"decisions,omitempty"`
		Unknown   string          `json:"unknown,omitempty"`
	}{p.Item, p.Closed, p.Decisions, p.Unknown}
}

// agentFacts are what all answers about an agent have.
type agentFacts struct {
	Agent       string        `json:"agent"`
	Description string        `json:"description,omitempty"`
	Contract    string        `json:"contract"`
	Version     string        `json:"version"`
	Model       sdk.ModelSpec `json:"model"`
	AgentState
	Problem string `json:"problem,omitempty"`
}

func (r *agentRow) facts() agentFacts {
	return agentFacts{r.Name, r.Description, r.Contract.Type, r.Version, r.Model, r.State, r.Problem}
}

func (p *agentsPage) forPrograms() any {
	agents := []agentFacts{}
	for i := range p.Agents {
		agents = append(agents, p.Agents[i].facts())
	}
	return map[string]any{"agents": agents, "calls": emptied(p.Graph.Rows)}
}

func (p *agentPage) forPrograms() any {
	return struct {
		agentFacts
		sdk.ContractVersion
	}{p.facts(), p.Contract.Versions[p.Version]}
}

func (p *servicesPage) forPrograms() any {
	type service struct {
		Type        string `json:"type"`
		URI         string `json:"uri"`
		Domain      string `json:"domain,omitempty"`
		Description string `json:"description,omitempty"`
		Unserved    bool   `json:"unserved,omitempty"`
		Problem     string `json:"problem,omitempty"`
	}
	services := []service{}
	for i := range p.Contracts {
		c := &p.Contracts[i]
		services = append(services, service{c.Type, c.URI, c.Domain, c.Description, c.Unserved, c.Problem})
	}
	return map[string]any{"services": services, "problem": p.Problem}
}

func (p *contractPage) forPrograms() any {
	return struct {
		sdk.Contract
		Instances []string `json:"instances"`
		Problem   string   `json:"problem,omitempty"`
	}{p.Contract, emptied(p.Instances), p.Problem}
}

func (p *healthPage) forPrograms() any { return p.Examination }

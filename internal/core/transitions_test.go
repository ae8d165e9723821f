package core_test

import (
	"slices"
	"strings"

	"agentd/internal/core"
)

// transition is a change of status, as the tables of docs/state_machine.md name it.
type transition struct{ from, input, to string }

func (t transition) String() string { return t.from + " | " + t.input + " | " + t.to }

// transitions is a set.
type transitions map[transition]bool

func (s transitions) add(o transitions) {
	for t := range o {
		s[t] = true
	}
}

func (s transitions) sorted() []string {
	var rows []string
	for t := range s {
		rows = append(rows, t.String())
	}
	slices.Sort(rows)
	return rows
}

// run notes what an entry does to the status of the run. A running run that will end at its driver's next commit is
// "ending".
func (s transitions) run(before *core.Head, e *core.Entry) {
	s[transition{runStatus(before), e.Kind, runStatus(&e.Head)}] = true
}

func runStatus(h *core.Head) string {
	switch {
	case h.Status == "":
		return "none"
	case h.Status == core.StatusDone:
		return "done: " + string(h.Reason)
	case h.Cancel != nil:
		return "ending"
	}
	return string(h.Status)
}

// callsOf notes what an entry does to its calls.
func (s transitions) callsOf(before *core.Head, e *core.Entry) {
	calls := before.Calls
	if before.Left != nil {
		calls = before.Left.Calls // a retry gives them back
	}
	from := func(id string) string {
		for _, c := range calls {
			if c.ID == id {
				return string(c.Status)
			}
		}
		return "none"
	}
	for _, c := range e.Head.Calls {
		if f := from(c.ID); f != string(c.Status) && !c.Closed() {
			s[transition{f, e.Kind, string(c.Status)}] = true
		}
	}
	for _, r := range e.Results {
		to := string(core.CallSucceeded)
		switch {
		case r.Kind == core.ResultCancelled:
			to = string(core.CallCancelled)
		case r.Error:
			to = string(core.CallFailed)
		}
		s[transition{from(r.Call), e.Kind, to}] = true
	}
	for _, c := range before.Calls {
		told := slices.ContainsFunc(e.Results, func(r core.Result) bool { return r.Call == c.ID })
		if len(e.Head.Calls) == 0 && !c.Closed() && !told { // a turn, whose end does not give the model a result
			s[transition{string(c.Status), e.Kind, string(core.CallCancelled)}] = true
		}
	}
}

// table reads the rows of the first table after a heading: | from | input | to | when |. A cell may hold several values,
// separated by commas: the row then stands for all their combinations.
func table(document, heading string) transitions {
	_, rest, _ := strings.Cut(document, "\n## "+heading+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	rows := transitions{}
	for _, line := range strings.Split(rest, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		if !strings.HasPrefix(line, "| `") || len(cells) != 4 {
			continue
		}
		for _, from := range values(cells[0]) {
			for _, input := range values(cells[1]) {
				for _, to := range values(cells[2]) {
					rows[transition{from, input, to}] = true
				}
			}
		}
	}
	return rows
}

func values(cell string) []string {
	var v []string
	for _, s := range strings.Split(cell, ",") {
		v = append(v, strings.Trim(s, " `"))
	}
	return v
}

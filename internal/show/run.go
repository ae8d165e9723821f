package show

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// RunRow is a run in a list.
type RunRow struct {
	Run    string      `json:"run"`
	Agent  string      `json:"agent"`
	Status core.Status `json:"status"`
	Reason core.Reason `json:"reason,omitempty"`
	Code   string      `json:"reason_code,omitempty"`
	// Updated is when the run's last entry was made, in Unix milliseconds.
	Updated  int64         `json:"updated"`
	Revision uint64        `json:"rev"`
	Waiting  []WaitingCall `json:"waiting,omitempty"`
	// HandedBack says that no worker has the run, and that it is tried again.
	HandedBack bool `json:"handed_back,omitempty"`
	// Parked is what the run waits for that has something to do, and Paused that an operator wants it to wait.
	Parked *core.Parking `json:"parked,omitempty"`
	Paused *core.Pause   `json:"paused,omitempty"`
	// Purged is when the run's history was removed, in Unix milliseconds.
	Purged int64 `json:"purged,omitempty"`
}

// WaitingCall is a call without an answer. Due is in Unix milliseconds.
type WaitingCall struct {
	Call string `json:"call"`
	Tool string `json:"tool,omitempty"`
	Type string `json:"type"`
	Due  int64  `json:"due,omitempty"`
	// Domain is where it was sent, and ToService says that it was sent to a service. Unserved says that nobody seems to take such
	// calls now.
	Domain    string `json:"domain,omitempty"`
	ToService bool   `json:"-"`
	Unserved  bool   `json:"unserved,omitempty"`
}

// WaitingCalls are the calls without an answer of a run that waits.
func WaitingCalls(h *core.Head) []WaitingCall {
	var calls []WaitingCall
	for _, c := range h.Calls {
		// A call that is held is not made before its permission request, a call beside it, is decided. A run may go on while calls of
		// rounds before are open.
		if !c.Closed() && c.Held == "" && (h.Status == core.StatusWaiting || c.Opened > 0) {
			w := WaitingCall{Call: c.ID, Tool: c.Tool, Type: c.Type, Due: c.Due, ToService: c.WithService()}
			if len(c.Domains) > 0 {
				w.Domain = c.Domains[0]
			}
			calls = append(calls, w)
		}
	}
	return calls
}

// Unreadable is the status of a run whose journal this version cannot read.
const Unreadable core.Status = "unreadable"

// Refused is the status of a run that never began, because its init event was refused.
const Refused core.Status = "refused"

// RefusedRow is the row of a run that never began, by the event that says so: the end of a run that began says why it ended.
// at is in Unix milliseconds.
func RefusedRow(agent string, end wire.Event, at int64) (RunRow, bool) {
	problem, failed := wire.ProblemIn(end.Type, end.Data)
	_, began := end.Extensions[wire.TerminationReason]
	row := RunRow{Run: end.Subject, Agent: agent, Status: Refused, Updated: at}
	if failed {
		row.Reason = core.Reason(problem.Code)
	}
	return row, failed && !began
}

// RowOf is the row of a run with that last entry.
func RowOf(e *core.Entry) RunRow {
	row := RunRow{
		Run: e.Head.Run, Agent: e.Head.Agent, Status: e.Head.Status, Reason: e.Head.Reason, Updated: e.At, Code: e.Head.ReasonCode,
		Revision: e.Rev, Waiting: WaitingCalls(&e.Head), HandedBack: handedBack(&e.Head),
		Parked: e.Head.Parked, Paused: e.Head.Paused,
	}
	if p := e.Head.Purged; p != nil {
		row.Purged, row.Revision = p.At, p.Rev
	}
	return row
}

// RowOfStatus is the row of a run that a worker tells of.
func RowOfStatus(s wire.RunStatus) RunRow {
	return RunRow{
		Run: s.Run, Agent: s.Agent, Status: s.Status, Reason: s.Reason, Code: s.Code, Updated: s.Updated, Revision: s.Revision,
		Waiting: waitingIn(s), Parked: s.Parked, Paused: s.Paused, Purged: s.Purged,
	}
}

func waitingIn(s wire.RunStatus) []WaitingCall {
	var calls []WaitingCall
	for _, c := range s.Waiting {
		if s.Status == core.StatusWaiting {
			calls = append(calls, WaitingCall{Call: c.Call, Tool: c.Tool, Type: c.Type, Due: c.Due})
		}
	}
	return calls
}

func (r RunRow) status() string {
	text := StatusText(r.Status, r.Reason, r.Code)
	if r.HandedBack {
		text += waitsForRetry
	}
	if r.Paused != nil {
		text += pausedText
	}
	if r.Purged > 0 {
		text += ", history removed"
	}
	return text
}

// waitsForRetry is said of a run that is running and that no worker has.
const waitsForRetry = ", to be tried again"

// handedBack reports whether whoever drove the run could not go on, because the broker was away for example: its message is
// delivered again after a pause.
func handedBack(h *core.Head) bool { return h.Driver != nil && h.Driver.Owner == "" }

// StatusText is the status with why the run ended: "done (quota: tokens)".
func StatusText(s core.Status, r core.Reason, code string) string {
	if r != "" {
		return fmt.Sprintf("%s (%s)", s, ReasonText(r, code))
	}
	return string(s)
}

// ReasonText is why a run ended. How a completed one did says nothing more.
func ReasonText(r core.Reason, code string) string {
	if code == "" || r == core.ReasonCompleted {
		return string(r)
	}
	return string(r) + ": " + code
}

// pausedText is said of a run that does nothing until it is resumed.
const pausedText = ", paused"

// ParkedText is what a parked run waits for, as of a time in Unix milliseconds: "model gpt-4o-mini since 3m, next try within 40s"; empty
// for one that is not parked, or is being tried.
func ParkedText(p *core.Parking, now int64) string {
	if p == nil || p.Until == 0 {
		return ""
	}
	waited := Duration(time.Duration(now-p.Since) * time.Millisecond)
	if p.Why == core.ParkPaused {
		return "its agent, paused since " + waited
	}
	return fmt.Sprintf("model %s since %s, next try within %s", cmp.Or(p.Model, p.Key), waited, left(time.Duration(p.Until-now)*time.Millisecond))
}

// parkedBecause is ParkedText with why: "model gpt-4o-mini since 3m, next try within 40s: no route to host".
func parkedBecause(p *core.Parking, now int64) string {
	text := ParkedText(p, now)
	if text != "" && p.Message != "" {
		text += ": " + p.Message
	}
	return text
}

// waitingFor names everything that the run waits for.
func (r RunRow) waitingFor() string {
	if text := parkedBecause(r.Parked, time.Now().UnixMilli()); text != "" {
		return Line(text, LineMax)
	}
	return waitingText(r.Waiting)
}

// waitingText names what calls wait for.
func waitingText(calls []WaitingCall) string {
	if len(calls) == 0 {
		return "-"
	}
	names := make([]string, len(calls))
	for i, c := range calls {
		switch names[i] = cmp.Or(c.Tool, "the person"); c.Type {
		case sdk.TypePermissionRequest:
			names[i] = "permission for " + c.Tool
		case sdk.TypePlanReview:
			names[i] = "approval of its plan"
		}
	}
	return Line(strings.Join(names, ", "), LineMax)
}

// Runs writes a line for each run.
func Runs(w io.Writer, rows []RunRow, columns int) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no runs")
		return err
	}
	var t Table
	t.Row("RUN", "AGENT", "STATUS", "CHANGED", "WAITING FOR")
	for _, r := range rows {
		t.Row(Name(r.Run), Name(cmp.Or(r.Agent, "-")), r.status(), Ago(r.Updated), r.waitingFor())
	}
	return t.Write(w, "", columns)
}

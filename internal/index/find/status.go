package find

import (
	"agentd/internal/index"
	"agentd/internal/requests"
	"agentd/sdk/wire"
)

// Untold are the conditions of filters about what workers do not tell of runs.
var Untold = []string{index.KeyText, index.KeySpec, index.KeyParent, index.KeyStarted, index.KeyDuration}

// OfStatus is what a worker tells of a run as the index has it.
func OfStatus(s wire.RunStatus) index.Document {
	d := index.Document{
		V: index.DocumentVersion, Run: s.Run, Agent: s.Agent, Rev: s.Revision, Status: s.Status, Reason: s.Reason, Code: s.Code, Who: s.Initiator,
		Started: s.Started, Changed: s.Updated, Deadline: s.Deadline, Turns: s.Turns, Purged: s.Purged, Tags: s.Tags,
		Tokens: index.Tokens{In: s.Usage.Prompt, Out: s.Usage.Completion},
	}
	if s.Status == wire.StatusDone {
		return d
	}
	if s.Paused != nil {
		d.Waits = append(d.Waits, index.Wait{Kind: string(wire.ParkPaused)})
	}
	for _, w := range s.Waiting {
		kind := string(requests.KindOf(w.Type))
		if kind == string(requests.KindTask) {
			kind = "service"
		}
		if s.Status == wire.StatusWaiting && len(d.Waits) < index.MaxWaits {
			d.Waits = append(d.Waits, index.Wait{Kind: kind, Tool: w.Tool, ID: w.Call})
		}
		if w.Due > 0 && (d.Due == 0 || w.Due < d.Due) {
			d.Due = w.Due
		}
	}
	if s.Parked != nil && s.Parked.Until > 0 {
		d.Waits = append(d.Waits, index.Wait{Kind: string(s.Parked.Why)})
	}
	return d
}

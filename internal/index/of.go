package index

import (
	"encoding/json"
	"slices"
	"strings"

	"agentd/internal/clip"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Of is the document of a run.
func Of(i runner.Indexed) Document {
	h := i.Head
	d := Document{
		V: DocumentVersion, Run: h.Run, Agent: h.Agent, Spec: h.Spec, Rev: i.Rev, Etag: i.Etag, Status: h.Status, Reason: h.Reason,
		Code: h.ReasonCode, Who: h.Init.Who, Started: i.Started, Changed: i.At, Deadline: h.Deadline, Turns: h.Turns,
		Tokens: Tokens{In: h.Usage.Prompt, Out: h.Usage.Completion, CacheRead: h.Usage.CacheRead, CacheWrite: h.Usage.CacheWrite},
		Text:   textOf(i.Input),
	}
	d.Tags, _ = wire.ParseTags(h.Tags) // the head has none that cannot be read
	if by := h.Init.DelegatedBy; by != nil {
		d.Parent = by.Run
	}
	if p := h.Purged; p != nil {
		d.Purged, d.Rev = p.At, p.Rev+1
	}
	d.Waits, d.Due = waitsOf(h)
	return d
}

// waitsOf is what a run waits for, and when the first of it runs out.
func waitsOf(h *core.Head) (waits []Wait, due int64) {
	if h.Paused != nil {
		waits = append(waits, Wait{Kind: string(wire.ParkPaused)})
	}
	if h.Parked != nil && h.Parked.Until > 0 {
		waits = append(waits, Wait{Kind: string(h.Parked.Why)})
	}
	if h.Status != wire.StatusWaiting {
		return waits, 0
	}
	for i := range h.Calls {
		c := &h.Calls[i]
		// A call that is held is not made before its permission request, a call beside it, is decided.
		if c.Closed() || c.Held != "" {
			continue
		}
		if len(waits) < MaxWaits {
			kind := c.Kind
			if c.Type == sdk.TypeQuestion { // also of a model's call, which is one like those to services
				kind = core.CallQuestion
			}
			waits = append(waits, Wait{Kind: string(kind), Tool: c.Tool, ID: c.ID})
		}
		if c.Due > 0 && (due == 0 || c.Due < due) {
			due = c.Due
		}
	}
	return waits, due
}

// textOf is the beginning of the texts in a run's input, the message first.
func textOf(input json.RawMessage) string {
	var data map[string]any
	if json.Unmarshal(input, &data) != nil {
		return ""
	}
	var texts []string
	if message, is := data["message"].(string); is {
		texts = append(texts, message)
		delete(data, "message")
	}
	size := 0
	var collect func(any)
	collect = func(value any) {
		switch v := value.(type) {
		case string:
			texts = append(texts, v)
			size += len(v)
		case []any:
			for _, item := range v {
				collect(item)
			}
		case map[string]any:
			names := make([]string, 0, len(v))
			for name := range v {
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				if size < MaxText {
					collect(v[name])
				}
			}
		}
	}
	collect(data)
	return clip.Text(strings.Join(texts, " "), MaxText)
}

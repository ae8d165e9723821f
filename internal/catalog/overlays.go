package catalog

import (
	"strings"
	"time"

	"agentd/internal/prompt"
	"agentd/sdk"
)

// overlays are what the model is told anew in each turn.
type overlays struct {
	zone    *time.Location
	working *prompt.Template
}

func newOverlays(spec *sdk.Overlays) (overlays, error) {
	var o overlays
	var err error
	if spec == nil {
		return o, nil
	}
	if spec.Date != "" {
		if o.zone, err = prompt.Zone(spec.Date); err != nil {
			return o, err
		}
	}
	o.working, err = prompt.Parse(prompt.WorkingContext, spec.WorkingContext)
	return o, err
}

// build are the sections of a turn at now, in Unix milliseconds.
func (o overlays) build(now int64, data prompt.Data) ([]sdk.Section, error) {
	var sections []sdk.Section
	if o.zone != nil {
		sections = append(sections, sdk.Section{Name: prompt.Date, Text: prompt.DateText(time.UnixMilli(now).In(o.zone))})
	}
	if o.working == nil {
		return sections, nil
	}
	text, err := o.working.Render(data)
	if err == nil && strings.TrimSpace(text) != "" {
		sections = append(sections, sdk.Section{Name: prompt.WorkingContext, Text: text})
	}
	return sections, err
}

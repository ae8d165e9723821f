package core

import (
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// maxTagged is how many messages about its tags a run remembers, so that one which comes twice counts once.
const maxTagged = 16

// tagAsked changes by which tags people find the run. Nothing that it does depends on them.
func (t *transition) tagAsked(ev TagAsked) error {
	h := &t.Head
	if slices.Contains(h.Tagged, ev.ID) || h.Status == StatusDone || h.Cancel != nil {
		return ErrStale
	}
	tags, err := wire.ParseTags(h.Tags)
	if err != nil {
		return violation(h, "tags that cannot be read: %v", err)
	}
	if tags == nil {
		tags = map[string]string{}
	}
	for _, c := range ev.Tags {
		if c.Value != nil {
			tags[c.Key] = *c.Value
		} else {
			delete(tags, c.Key)
		}
	}
	if err := wire.CheckTags(tags); err != nil {
		return sdk.Errorf(sdk.CodeMessageRefused, "the tags of the run stay as they are: %v", err)
	}
	h.Tags, h.Tagged = wire.FormatTags(tags), append(slices.Clip(h.Tagged), ev.ID)
	h.Tagged = h.Tagged[max(0, len(h.Tagged)-maxTagged):]
	return nil
}

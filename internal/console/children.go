package console

import (
	"context"
	"errors"
	"slices"

	"agentd/internal/core"
	"agentd/sdk"
)

// childRun is a run that a call started, and the last of what it did: a part of its caller's timeline. More says that it did other things
// before, which its own timeline has.
type childRun struct {
	Run   string `json:"run"`
	Spans []span `json:"spans"`
	More  bool   `json:"more,omitempty"`
}

const (
	// childrenShown is how many of the runs that a run called a timeline has: the last ones. The others are behind links of their own.
	childrenShown = 10
	// childSpans is how many bars it has of each.
	childSpans = 20
)

// children puts what called agents did at their calls.
func (c *console) children(ctx context.Context, p *timelinePage) error {
	agents := map[string]bool{}
	for _, spec := range c.Agents() {
		agents[spec.Contract.Type] = true
	}
	left := childrenShown
	for i := len(p.Spans) - 1; i >= 0 && left > 0; i-- {
		s := &p.Spans[i]
		if s.Kind != string(core.CallService) || !agents[s.of] {
			continue
		}
		child, err := c.child(ctx, p.Run+"/"+s.call)
		if err != nil {
			return err
		}
		if s.Child = child; child != nil {
			left--
		}
	}
	return nil
}

// child is what a run did last. nil is that it does not exist yet, or any more, or that this user may not read it.
func (c *console) child(ctx context.Context, run string) (*childRun, error) {
	last, err := c.Source.Last(ctx, run)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) || errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, end := c.now().UnixMilli(), last.Rev+1
	entries, err := c.back(ctx, run, end, func(read []core.Entry) bool { return len(spansOf(read, &last, end, now)) >= childSpans })
	if err != nil {
		return nil, err
	}
	spans := spansOf(entries, &last, end, now)
	child := &childRun{Run: run, Spans: spans, More: len(entries) > 0 && entries[0].Rev > 1}
	if n := len(spans) - childSpans; n > 0 {
		child.Spans, child.More = slices.Clone(spans[n:]), true
	}
	return child, nil
}

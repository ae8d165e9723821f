package approval

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"agentd/internal/toolpattern"
	"agentd/sdk"
)

// stricter asks two managers, and lets the stricter ruling count.
type stricter struct{ first, second sdk.PermissionManager }

// Stricter is a manager that allows what both allow. Where both ask, it asks under the terms of the first, tightened by
// those of the second. Either may be nil.
func Stricter(first, second sdk.PermissionManager) sdk.PermissionManager {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return stricter{first, second}
}

var severity = map[sdk.PermissionVerdict]int{sdk.PermissionAllow: 0, sdk.PermissionAsk: 1}

func severityOf(v sdk.PermissionVerdict) int {
	if s, known := severity[v]; known {
		return s
	}
	return 2
}

// Check implements sdk.PermissionManager.
func (s stricter) Check(ctx context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	a, err := s.first.Check(ctx, c)
	if err != nil {
		return sdk.PermissionRuling{}, err
	}
	b, err := s.second.Check(ctx, c)
	if err != nil {
		return sdk.PermissionRuling{}, err
	}
	switch {
	case severityOf(b.Verdict) > severityOf(a.Verdict):
		return b, nil
	case a.Verdict != sdk.PermissionAsk || b.Verdict != sdk.PermissionAsk:
		return a, nil
	}
	return tighten(a, b)
}

// tighten is a with what b demands beyond it. What contradicts each other cannot be asked for, so it is denied.
func tighten(a, b sdk.PermissionRuling) (sdk.PermissionRuling, error) {
	t := &a.Terms
	t.Quorum = max(t.Quorum, b.Terms.Quorum)
	t.FourEyes = t.FourEyes || b.Terms.FourEyes
	t.Signed = t.Signed || b.Terms.Signed
	t.Results = t.Results && b.Terms.Results
	t.Batch = t.Batch && b.Terms.Batch
	t.Risk = cmp.Or(t.Risk, b.Terms.Risk)
	if often := b.Terms.RemindMillis; often > 0 && (t.RemindMillis == 0 || often < t.RemindMillis) {
		t.RemindMillis = often
	}
	if t.Stages = route(t.Stages, b.Terms.Stages); len(t.Stages) == 0 {
		return sdk.PermissionRuling{Verdict: sdk.PermissionDeny, Rule: a.Rule, Reason: "the policies ask different domains"}, nil
	}
	t.Scopes = common(orCall(t.Scopes), orCall(b.Terms.Scopes))
	if len(t.Scopes) == 0 {
		t.Scopes = []sdk.GrantScope{sdk.ScopeCall}
	}
	switch {
	case len(t.Approvers) == 0:
		t.Approvers = b.Terms.Approvers
	case len(b.Terms.Approvers) > 0:
		if t.Approvers = common(t.Approvers, b.Terms.Approvers); len(t.Approvers) == 0 {
			return sdk.PermissionRuling{Verdict: sdk.PermissionDeny, Rule: a.Rule, Reason: "no approver may decide by both policies"}, nil
		}
	}
	if a.Rule != b.Rule && b.Rule != "" {
		a.Rule += ", " + b.Rule
	}
	a.Reason = cmp.Or(a.Reason, b.Reason)
	return a, nil
}

// route are the domains that both ask, one after the other, for as long as both wait. One that names none, such as a manager in Go,
// leaves it to the other.
func route(a, b []sdk.PermissionStage) []sdk.PermissionStage {
	if len(a) == 0 || len(b) == 0 {
		return slices.Concat(a, b)
	}
	var both []sdk.PermissionStage
	for i := range min(len(a), len(b)) {
		if a[i].Domain != b[i].Domain {
			break
		}
		both = append(both, sdk.PermissionStage{Domain: a[i].Domain, TimeoutMillis: min(a[i].TimeoutMillis, b[i].TimeoutMillis)})
	}
	return both
}

func orCall(s []sdk.GrantScope) []sdk.GrantScope {
	if len(s) == 0 {
		return []sdk.GrantScope{sdk.ScopeCall}
	}
	return s
}

func common[T comparable](a, b []T) []T {
	return slices.DeleteFunc(slices.Clone(a), func(v T) bool { return !slices.Contains(b, v) })
}

// Reserve implements sdk.PermissionManager: whoever asks must be satisfied, so a grant counts only where both have one or do
// not ask.
func (s stricter) Reserve(ctx context.Context, c sdk.PermissionCheck) (string, error) {
	grant := ""
	for _, m := range []sdk.PermissionManager{s.first, s.second} {
		ruling, err := m.Check(ctx, c)
		if err != nil {
			return "", err
		}
		if ruling.Verdict != sdk.PermissionAsk {
			continue
		}
		found, err := m.Reserve(ctx, c)
		if err != nil || found == "" {
			return "", err
		}
		grant = cmp.Or(grant, found)
	}
	return grant, nil
}

// Request implements sdk.PermissionManager.
func (s stricter) Request(ctx context.Context, c sdk.PermissionCheck, r sdk.PermissionRequest) (sdk.PermissionRequest, error) {
	r, err := s.first.Request(ctx, c, r)
	if err != nil {
		return r, err
	}
	return s.second.Request(ctx, c, r)
}

// Record implements sdk.PermissionManager: both keep it.
func (s stricter) Record(ctx context.Context, g sdk.GrantRecord) error {
	return errors.Join(s.first.Record(ctx, g), s.second.Record(ctx, g))
}

// Cleanup implements sdk.PermissionManager.
func (s stricter) Cleanup(ctx context.Context, run string) error {
	return errors.Join(s.first.Cleanup(ctx, run), s.second.Cleanup(ctx, run))
}

// AllowAll is the policy of agents that have none.
type AllowAll struct{}

// Check implements sdk.PermissionManager.
func (AllowAll) Check(context.Context, sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	return sdk.PermissionRuling{Verdict: sdk.PermissionAllow}, nil
}

// Reserve implements sdk.PermissionManager.
func (AllowAll) Reserve(context.Context, sdk.PermissionCheck) (string, error) { return "", nil }

// Request implements sdk.PermissionManager.
func (AllowAll) Request(_ context.Context, _ sdk.PermissionCheck, r sdk.PermissionRequest) (sdk.PermissionRequest, error) {
	return r, nil
}

// Record implements sdk.PermissionManager.
func (AllowAll) Record(context.Context, sdk.GrantRecord) error { return nil }

// Cleanup implements sdk.PermissionManager.
func (AllowAll) Cleanup(context.Context, string) error { return nil }

// Required is a policy that asks, under the given terms, for the tools that a run puts under permission.
type Required struct {
	Terms sdk.PermissionTerms
	sdk.PermissionManager
}

// Check implements sdk.PermissionManager.
func (r Required) Check(ctx context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	ruling, err := r.PermissionManager.Check(ctx, c)
	// Runs that began before malformed patterns were refused may have one: nobody knows which tools it stands for.
	unreadable := func(pattern string) bool { return toolpattern.Check(pattern) != nil }
	asks := toolpattern.Match(c.Require, c.Tool) || slices.ContainsFunc(c.Require, unreadable)
	if err != nil || ruling.Verdict != sdk.PermissionAllow || !asks {
		return ruling, err
	}
	return sdk.PermissionRuling{
		Verdict: sdk.PermissionAsk, Rule: "required by the run", Reason: "whoever started the run asks for it", Terms: r.Terms,
	}, nil
}

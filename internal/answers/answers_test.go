package answers

import (
	"strings"
	"testing"
	"time"

	"agentd/internal/days"
	"agentd/sdk"
)

// quiet is an agent that asks nobody for long.
func quiet() sdk.AgentSpec {
	return sdk.AgentSpec{Name: "desk", Limits: sdk.Limits{QuestionTimeoutMillis: time.Hour.Milliseconds()}}
}

func millis(d time.Duration) int64 { return d.Milliseconds() }

func TestNeeded(t *testing.T) {
	t.Parallel()
	stage := func(d time.Duration) *sdk.PermissionPolicyTerms {
		return &sdk.PermissionPolicyTerms{TimeoutMillis: millis(d)}
	}
	for name, c := range map[string]struct {
		change func(*sdk.AgentSpec)
		want   time.Duration
		why    string
	}{
		"nobody waits for long": {func(*sdk.AgentSpec) {}, Redelivered, "delivered again"},
		"questions by default":  {func(a *sdk.AgentSpec) { a.Limits.QuestionTimeoutMillis = 0 }, sdk.DefaultQuestionTimeout, "agent desk may wait as long for the answer to a question"},
		"a slow service": {func(a *sdk.AgentSpec) {
			a.Services = []sdk.ServiceTool{{}, {Contract: sdk.Contract{Type: "ship.order"}, TimeoutMillis: millis(20 * days.Day)}}
		}, 20 * days.Day, "ship.order"},
		"a service by default": {func(a *sdk.AgentSpec) { a.Services = []sdk.ServiceTool{{}} }, Redelivered, "delivered again"},
		"a call ends with its run": {func(a *sdk.AgentSpec) {
			a.Services, a.Limits.DeadlineMillis = []sdk.ServiceTool{{TimeoutMillis: millis(20 * days.Day)}}, millis(3*days.Day)
		}, 3 * days.Day, "timeout"},
		"the longest run by default": {func(a *sdk.AgentSpec) {
			a.Services = []sdk.ServiceTool{{TimeoutMillis: millis(90 * days.Day)}}
		}, sdk.DefaultRunDeadline, "timeout"},
		"a rule of permissions": {func(a *sdk.AgentSpec) {
			a.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{}, {Terms: stage(9 * days.Day)}}}
		}, 9 * days.Day, "a decision (expires)"},
		"who is asked next": {func(a *sdk.AgentSpec) {
			next := []sdk.PermissionStage{{Domain: "boss", TimeoutMillis: millis(11 * days.Day)}}
			a.Permissions = &sdk.PermissionPolicy{Terms: sdk.PermissionPolicyTerms{Escalate: next}, Rules: []sdk.PermissionRule{{}}}
		}, 11 * days.Day, "a decision (expires)"},
		"approval of plans": {func(a *sdk.AgentSpec) { a.Plan = &sdk.PlanSpec{Review: stage(12 * days.Day)} }, 12 * days.Day, "a decision (expires)"},
	} {
		spec := quiet()
		c.change(&spec)
		need := Needed([]sdk.AgentSpec{quiet(), spec, quiet()})
		if need.For != c.want || !strings.Contains(need.Why, c.why) {
			t.Errorf("%s: %s, for which %s; want %s and %q", name, need.For, need.Why, c.want, c.why)
		}
	}
	if n := Needed(nil); n.For != Redelivered {
		t.Errorf("without agents it is %s", n.For)
	}
}

func TestNeed_OfWorkers(t *testing.T) {
	t.Parallel()
	n := Needed(nil)
	if got := n.WithEarly(3 * days.Day); got.For != 3*days.Day || !strings.Contains(got.Why, "approvals.early") {
		t.Errorf("with early decisions: %+v", got)
	}
	if got := n.WithReconcile(48*time.Hour, time.Hour); got.For != 73*time.Hour || !strings.Contains(got.Why, "reconcile.interval") {
		t.Errorf("with rare passes: %+v", got)
	}
	if got := n.WithEarly(time.Hour).WithReconcile(0, 90*days.Day).WithReconcile(time.Hour, time.Minute); got != n {
		t.Errorf("what is shorter, or never, needs %+v", got)
	}
}

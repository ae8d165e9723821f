package seeds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentd/internal/audit"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// approvalLog is row L70: the log has every call that the model asked for, also those that were never made, with who decided what
// and why.
func approvalLog(t *testing.T) {
	a := desk(service("shop.find"), service("shop.buy"))
	a.Tools = []sdk.Tool{echo("note")}
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
		{Tools: []string{"shop_find"}, Verdict: sdk.PermissionAsk, Reason: "costs"},
		{Tools: []string{"shop_buy"}, Verdict: sdk.PermissionDeny, Reason: "closed"},
	}}
	h := start(t, sdktest.Script(sdktest.Ask(
		sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2)), sdktest.Tool("shop_buy", n(3)), sdktest.Tool("note", n(4)),
		sdktest.Tool("nothing", n(5))), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	asked := requests(t, h, 2)
	as := func(who, number string, d sdk.PermissionDecision) {
		c := asked[number]
		if d.ArgsHash == "" {
			d.ArgsHash = fmt.Sprint(c.Data()["args_sha256"])
		}
		event := c.Response("agentd.permission.decided", d)
		event.ID = who + number
		h.PublishAs(who, c, event)
	}
	h.Suspended(r, 4)
	as("eve", "1", sdk.PermissionDecision{Decision: "allow", ArgsHash: strings.Repeat("0", 64)})
	h.Until(r, "recorded", func(s core.State) bool {
		return slices.ContainsFunc(s.Calls, func(c core.Call) bool { return c.Permission != nil && c.Permission.Refusals == 1 })
	})
	as("ann", "1", sdk.PermissionDecision{Decision: "allow", Reason: "fine"})
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	as("bob", "2", sdk.PermissionDecision{Decision: "deny", Reason: "too dear"})
	succeeds(t, h, r, `{"response": "done"}`)

	log := audit.NewLog()
	log.Tools = map[string]string{}
	for _, e := range h.Parts(r) {
		if err := log.Entry(audit.LogRecord{At: e.At, Run: e.Head.Run, Agent: e.Head.Agent, Revision: e.Rev}, &e); err != nil {
			t.Fatal(err)
		}
	}
	lines := map[string][]string{}
	numbers := map[string]string{}
	for _, l := range log.Records {
		if l.Event == "called" {
			numbers[l.Call] = l.Tool + string(l.Args)
		}
		line := strings.Join(strings.Fields(fmt.Sprint(l.Event, " ", l.Decision, " ", l.Who, " ", l.Reason, " ", l.Kind)), " ")
		if l.Error {
			line += " failed"
		}
		lines[numbers[l.Call]] = append(lines[numbers[l.Call]], line)
		if l.At == 0 || l.Run != r.Subject || l.Agent != "desk" || l.Revision == 0 {
			t.Errorf("nobody knows where %+v comes from", l)
		}
	}
	equal(t, "log", lines, map[string][]string{
		`shop_find{"n":1}`: {
			"called", "requested costs", "refused allow eve it was decided on other arguments", "decided allow ann fine", "made", "returned answer",
		},
		`shop_find{"n":2}`:   {"called", "requested costs", "decided deny bob too dear", "returned denied failed"},
		`shop_buy{"n":3}`:    {"called", "returned denied failed"},
		`note{"n":4}`:        {"called", "returned inline"},
		`nothing"{\"n\":5}"`: {"called", "returned refused failed"},
	})
}

package buckets

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/sdk"
)

// grants are those of a server of its own.
func grants(t *testing.T) Grants {
	t.Helper()
	c := brokertest.Connect(t, broker.ConnectOptions{InProcess: brokertest.Server(t, embedded.Options{})})
	if _, err := provision.Apply(brokertest.Context(t), c, provision.Plan{}); err != nil {
		t.Fatal(err)
	}
	return GrantsOf(c)
}

func payment(id string, uses int, expires int64) sdk.GrantRecord {
	return sdk.GrantRecord{
		ID: id, Agent: "clerk", Principal: "anna", Tool: "pay", Scope: sdk.ScopePrincipal, By: []string{"boss"}, Domains: []string{sdk.HumanDomain},
		Uses: uses, Expires: expires,
	}
}

func paymentCall(call string) sdk.PermissionCheck {
	return sdk.PermissionCheck{
		Agent: "clerk", Initiator: "anna", Tool: "pay", Call: call, Terms: sdk.PermissionTerms{
			Scopes: []sdk.GrantScope{sdk.ScopePrincipal}, Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain}},
		},
	}
}

func record(t *testing.T, g Grants, all ...sdk.GrantRecord) {
	t.Helper()
	for _, one := range all {
		if err := g.Record(brokertest.Context(t), one); err != nil {
			t.Fatal(err)
		}
	}
}

func reserve(t *testing.T, g Grants, c sdk.PermissionCheck, want string) {
	t.Helper()
	if got, err := g.Reserve(brokertest.Context(t), c); got != want || err != nil {
		t.Errorf("call %s gets the grant %q, %v; want %q", c.Call, got, err, want)
	}
}

func TestGrants_UsesAreCountedWhoeverRaces(t *testing.T) {
	t.Parallel()
	g := grants(t)
	record(t, g, payment("one", 5, 0))
	var mu sync.Mutex
	got := map[string]int{}
	var callers sync.WaitGroup
	for n := range 8 {
		for range 2 { // each call asks twice, as after a crash
			callers.Go(func() {
				id, err := g.Reserve(brokertest.Context(t), paymentCall(fmt.Sprintf("call-%d", n)))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if id != "" {
					got[fmt.Sprintf("call-%d", n)]++
				}
			})
		}
	}
	callers.Wait()
	if len(got) != 5 {
		t.Errorf("calls that have a use: %v; want 5", got)
	}
	for call := range got {
		reserve(t, g, paymentCall(call), "one")
	}
}

func TestGrants_OneThatIsGoneDoesNotComeBack(t *testing.T) {
	t.Parallel()
	g := grants(t)
	record(t, g, payment("revoked", 0, 0))
	if found, err := g.Revoke(brokertest.Context(t), "anna", "clerk", "pay", "revoked"); !found || err != nil {
		t.Fatalf("revoke: %t, %v", found, err)
	}
	record(t, g, payment("revoked", 0, 0)) // by a worker that does its work again
	reserve(t, g, paymentCall("call"), "")
}

// What is read for every call does not grow with how often somebody was asked.
func TestGrants_SpentOnesAreForgotten(t *testing.T) {
	t.Parallel()
	g := grants(t)
	yesterday := time.Now().Add(-24 * time.Hour).UnixMilli()
	for n := range 3 * keptSpent {
		id := fmt.Sprintf("grant-%d", n)
		record(t, g, payment(id, 1, 0), payment(id+"-expired", 0, yesterday))
		reserve(t, g, paymentCall("call-"+id), id)
	}
	record(t, g, payment("last", 1, 0))
	all, err := g.List(brokertest.Context(t))
	if err != nil || len(all) > keptSpent+1 {
		t.Errorf("%d grants are kept, %v; want %d at most", len(all), err, keptSpent+1)
	}
	last := fmt.Sprintf("grant-%d", 3*keptSpent-1)
	reserve(t, g, paymentCall("call-"+last), last)
	record(t, g, payment("grant-0", 1, 0)) // it is used up, and does not come back
	reserve(t, g, paymentCall("another"), "last")
	reserve(t, g, paymentCall("one more"), "")
}

func TestGrants_TermsThatNeedMoreAreNotSatisfied(t *testing.T) {
	t.Parallel()
	g := grants(t)
	record(t, g, payment("one", 0, 0))
	for what, terms := range map[string]sdk.PermissionTerms{
		"another scope": {Scopes: []sdk.GrantScope{sdk.ScopeTool}},
		"two":           {Scopes: []sdk.GrantScope{sdk.ScopePrincipal}, Quorum: 2},
		"a key":         {Scopes: []sdk.GrantScope{sdk.ScopePrincipal}, Signed: true},
		"somebody else": {Scopes: []sdk.GrantScope{sdk.ScopePrincipal}, Approvers: []string{"carl"}},
	} {
		c := paymentCall(what)
		c.Terms = terms
		reserve(t, g, c, "")
	}
	c := paymentCall("call")
	c.Terms.Approvers, c.Terms.FourEyes = []string{"boss"}, true
	reserve(t, g, c, "one")
}

package runner_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
)

// wider is a permission manager that offers approvers a scope wider than the call, and nothing else.
type wider struct{ *desk }

func (w wider) Check(ctx context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	r, err := w.desk.Check(ctx, c)
	r.Terms.Scopes = []sdk.GrantScope{sdk.ScopeTool}
	return r, err
}

// Whoever is asked is offered to decide on the one call, whatever a permission manager in Go offers.
func TestRequest_OffersTheOneCall(t *testing.T) {
	t.Parallel()
	d := newDesk(10, "book_ask")
	a := &talk{T: t, agent: d.agent(), store: newTalk(t).store}
	a.agent.Permissions = wider{d}
	r := a.worker()
	process(t, r, "order 7", starts, `{}`)
	entries := journal(t, r, "order 7")
	if len(entries[1].Requests) != 1 {
		t.Fatalf("%d requests, want one", len(entries[1].Requests))
	}
	var request struct {
		Scopes []sdk.GrantScope
		Answer struct {
			Properties struct {
				Scope struct{ Enum []sdk.GrantScope }
			}
		}
	}
	if err := json.Unmarshal(entries[1].Requests[0].Data, &request); err != nil {
		t.Fatal(err)
	}
	want := []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}
	if !slices.Equal(request.Scopes, want) || !slices.Equal(request.Answer.Properties.Scope.Enum, want) {
		t.Errorf("offered are %v, and answers may be %v; want %v", request.Scopes, request.Answer.Properties.Scope.Enum, want)
	}
	if last := entries[len(entries)-1].Head; last.Status != core.StatusWaiting {
		t.Errorf("the run is %s", last.Status)
	}
}

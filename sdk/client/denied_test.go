package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/test/natsserver"
)

// answering is a server on which each request about a run of the desk gets an answer, and which refuses live events.
func answering(t *testing.T, answer *nats.Msg) *client.Client {
	t.Helper()
	ns := natsserver.Start(t, server.Options{
		Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		Users: []*server.User{{Username: "worker", Password: "hot"}, {Username: "ann", Password: "cold", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Deny: []string{"agentd.stream.>"}},
		}}},
	})
	nc, err := nats.Connect(ns.ClientURL(), nats.UserInfo("worker", "hot"))
	must(t, err)
	t.Cleanup(nc.Close)
	_, err = nc.Subscribe("agentd.get.>", func(m *nats.Msg) {
		if err := m.RespondMsg(answer); err != nil {
			t.Error(err)
		}
	})
	must(t, err)
	must(t, nc.Flush())
	c, err := client.Connect(t.Context(), client.Options{URL: "nats://ann:cold@" + ns.Addr().String()})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// follow follows a run of the desk until it ends, with an error or without.
func follow(t *testing.T, c *client.Client) (told []string, err error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), sdktest.Patience)
	defer stop()
	for l, err := range c.Follow(ctx, client.Run{Agent: "desk", Name: "trip"}, wire.Mark{}) {
		if err != nil {
			return told, err
		}
		told = append(told, l.Type)
	}
	return told, nil
}

// Whoever may not see a run is told so, and does not wait for what never comes.
func TestFollow_EndsWhereTheRunMayNotBeSeen(t *testing.T) {
	t.Parallel()
	denied := &sdk.Error{Code: sdk.CodePermissionDenied}
	c := answering(t, &nats.Msg{Header: nats.Header{"Nats-Service-Error-Code": {"permission_denied"}, "Nats-Service-Error": {"somebody else started it"}}})
	if told, err := follow(t, c); !errors.Is(err, denied) || len(told) > 0 {
		t.Errorf("a run of somebody else: %q, %v", told, err)
	}
	c = answering(t, history(t, wire.MilestoneStarted))
	if told, err := follow(t, c); !errors.Is(err, denied) || len(told) != 1 {
		t.Errorf("a run whose live events are refused: %q, %v", told, err)
	}
	c = answering(t, history(t, wire.MilestoneStarted, wire.MilestoneFinished))
	if told, err := follow(t, c); err != nil || len(told) != 2 {
		t.Errorf("a run that has ended: %q, %v", told, err)
	}
}

// history is an answer with these milestones.
func history(t *testing.T, milestones ...string) *nats.Msg {
	t.Helper()
	status := wire.RunStatus{Run: "trip", Agent: "desk"}
	for i, kind := range milestones {
		status.Milestones = append(status.Milestones, wire.Live{
			Run: "trip", Agent: "desk", Revision: 1, Index: i, Count: len(milestones), Type: kind, Data: []byte(`{}`),
		})
	}
	data, err := json.Marshal(status)
	must(t, err)
	return &nats.Msg{Data: data}
}

package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk/service"
)

// A program that answers several types has one user, with what each of them needs.
func TestNATSConfig_OneUserForSeveralServices(t *testing.T) {
	g := newGuarded(t, "", func(agents string) string { return agents }, "--service", "bank=bank.pay,weather.forecast")
	g.work()
	paid := make(chan struct{}, 2) // a call may come twice
	g.serveAs("bank", func() { paid <- struct{}{} }, g.weather())
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	g.as("jane", "approvals", "approve", g.request("one").Short)
	<-paid
	g.eventually("both contracts are registered", func() bool {
		list := g.as("operator", "contracts", "list")
		return strings.Contains(list, "bank.pay") && strings.Contains(list, "weather.forecast")
	})
	if said := g.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what the program needs:\n%s", strings.Join(said, "\n"))
	}
}

// weather is a service that is never called.
func (g *guarded) weather() *service.Service {
	g.t.Helper()
	weather, err := service.FromFile(filepath.Join(filepath.Dir(g.config), "weather.yaml"))
	if err != nil {
		g.t.Fatal(err)
	}
	service.Handle(weather, func(context.Context, service.Call, map[string]any) (json.RawMessage, error) {
		return json.RawMessage(`{}`), nil
	})
	return weather
}

func TestNATSConfig_RefusesServicesThatNobodyCalls(t *testing.T) {
	t.Parallel()
	config, _ := clerkProject(t, "")
	s := &system{t: t, config: config, data: t.TempDir()}
	_, problems := s.expect(cli.ExitUsage, "nats-config", "--service", "bank=bank.pays,agentd.question.ask")
	contains(t, problems, "bank.pays", "agentd.question.ask")
	_, problems = s.expect(cli.ExitUsage, "nats-config", "--service", "bank")
	contains(t, problems, "NAME=TYPE")
}

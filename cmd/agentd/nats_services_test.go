package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

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

// A service may publish versions of its own contract, with whatever in them. With the URI of another's, or one that reads as its type, nobody
// takes them for the other's, and neither their removal for that of the other's.
func TestNATSConfig_AServiceTakesNoOthersPlaceInTheRegistry(t *testing.T) {
	g := newGuarded(t, "", func(agents string) string { return agents })
	g.as("operator", "contracts", "push", filepath.Join(filepath.Dir(g.config), "pay.yaml"))
	names := []string{"bank.pay", "#/bank/pay", "agentd:/bank/pay"}
	var before []string
	for _, name := range names {
		before = append(before, g.as("operator", "contracts", "show", name, "-o", "json"))
	}
	nc, _ := g.connect("svc_local_weather_forecast")
	defer nc.Close()
	for _, forged := range []struct{ uri, version string }{{"#/bank/pay", "1.0.0"}, {"agentd:/bank/pay", "1.9.0"}, {"bank.pay", "9.0.0"}} {
		subject := "$KV.AGENTD_CONTRACTS.weather_forecast." + strings.ReplaceAll(forged.version, ".", "_")
		record := fmt.Sprintf(`{"uri":%q,"type":"weather.forecast","versions":{%q:{"accepts":{"type":"object"},"emits":{"weather.told":{"type":"object"}}}}}`,
			forged.uri, forged.version)
		for _, m := range []*nats.Msg{{Subject: subject, Data: []byte(record)}, {Subject: subject, Header: nats.Header{"KV-Operation": {"DEL"}}}} {
			if answer, err := nc.RequestMsg(m, wait); err != nil || strings.Contains(string(answer.Data), `"error"`) {
				t.Fatalf("%s is not stored: %v", subject, err)
			}
			for n, name := range names {
				if diff := cmp.Diff(before[n], g.as("operator", "contracts", "show", name, "-o", "json")); diff != "" {
					t.Fatalf("%s, after what was stored on %s (-want +got):\n%s", name, subject, diff)
				}
			}
		}
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

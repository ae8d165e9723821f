package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk/wire"
)

// Whoever started a run may see and cancel it. Others are told so at once, and what they publish all the same changes nothing.
func TestRuns_AreTheirInitiators(t *testing.T) {
	g := startGuarded(t, "")
	g.as("bob", "run", "clerk", "-m", "Pay", "--subject", "of-bob", "-d")
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "of-shop", "-d")
	g.request("of-bob")
	g.request("of-shop")

	list := g.as("shop", "runs", "list", "-o", "json")
	contains(t, list, `"of-shop"`)
	if strings.Contains(list, "of-bob") {
		t.Errorf("a client is shown the run of somebody else: %s", list)
	}
	contains(t, g.as("shop", "runs", "show", "of-shop"), "waiting", "pay")
	for _, verb := range []string{"show", "follow", "cancel"} {
		_, problem := g.expect(cli.ExitFailure, "runs", verb, "of-bob", "--nats", g.url("shop"))
		contains(t, problem, `shop may not see run "of-bob": somebody else started it`)
	}
	contains(t, g.as("operator", "runs", "list"), "of-bob", "of-shop")

	// What the command does not send, a program can.
	nc, _ := g.connect("shop")
	cancel := wire.Event{ID: "c", Source: "test", Type: wire.TypeCancel, Subject: "of-bob", Data: json.RawMessage(`{}`)}
	data, err := cancel.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request("agentd.ctl.cancel.clerk."+wire.NewRunKey("of-bob").String()+".shop", data, wait); err != nil {
		t.Fatal(err)
	}
	g.eventually("the cancel is a dead letter", func() bool {
		return strings.Contains(g.as("operator", "dlq", "list"), "permission_denied")
	})
	contains(t, g.as("operator", "runs", "list", "--status", "waiting"), "of-bob")

	contains(t, g.as("shop", "runs", "cancel", "of-shop"), "cancelled")
	contains(t, g.as("operator", "runs", "cancel", "of-bob"), "cancelled")
	g.ended("bob", "of-bob")
}

// The server adds an import of the JetStream API to accounts without JetStream, whose refusal may come first. The file
// takes it out; a request that failed now and then would be that.
func TestNATSConfig_JetStreamIsThatOfTheStreams(t *testing.T) {
	g := newGuarded(t, "", func(agents string) string { return agents })
	const consumer = "$JS.API.CONSUMER.INFO.AGENTD_OUT.svc_local_weather_forecast"
	ask := func(when string) {
		t.Helper()
		nc, _ := g.connect("svc_local_weather_forecast")
		defer nc.Close()
		for range 10 {
			m, err := nc.Request(consumer, nil, wait)
			if err != nil || !strings.Contains(string(m.Data), `"name":"svc_local_weather_forecast"`) {
				t.Fatalf("%s: %v %s", when, err, m.Data)
			}
		}
	}
	ask("after the start")
	if err := g.server.Reload(); err != nil {
		t.Fatal(err)
	}
	ask("after a reload")
	g.restart()
	ask("after a restart")
	nc, _ := g.connect("shop")
	if _, err := nc.Request("$JS.API.INFO", nil, wait); err == nil {
		t.Error("a client is told of the streams")
	}
}

// All types of a program answer, also beside those of other programs: their accounts export the same subjects.
func TestNATSConfig_EveryTypeIsDiscovered(t *testing.T) {
	t.Run("one program", func(t *testing.T) {
		g := newGuarded(t, "", func(agents string) string { return agents }, "--service", "bank=bank.pay,weather.forecast")
		g.serveAs("bank", func() {}, g.weather())
		g.discovered()
	})
	t.Run("two programs", func(t *testing.T) {
		g := newGuarded(t, "", func(agents string) string { return agents })
		g.serve(func() {})
		g.offer("svc_local_weather_forecast", g.weather())
		g.discovered()
	})
}

// discovered asks all types as the operator.
func (g *guarded) discovered() {
	g.t.Helper()
	g.work()
	nc, _ := g.connect("operator")
	want := []string{"agentd-reader", "bank_pay", "clerk", "weather_forecast"}
	g.eventually("all types answer", func() bool {
		replies, err := nc.SubscribeSync(nc.NewInbox())
		if err != nil {
			g.t.Fatal(err)
		}
		defer func() { _ = replies.Unsubscribe() }()
		if err := nc.PublishMsg(&nats.Msg{Subject: "$SRV.PING", Reply: replies.Subject}); err != nil {
			g.t.Fatal(err)
		}
		var names []string
		for range want {
			m, err := replies.NextMsg(time.Second)
			if err != nil {
				return false
			}
			var pong struct{ Name string }
			if err := json.Unmarshal(m.Data, &pong); err != nil {
				g.t.Fatal(err)
			}
			names = append(names, pong.Name)
		}
		slices.Sort(names)
		return cmp.Equal(names, want)
	})
	for _, kind := range []string{"bank.pay", "weather.forecast"} {
		m, err := nc.Request("agentd.contract."+strings.ReplaceAll(kind, ".", "_"), nil, wait)
		if err != nil || !strings.Contains(string(m.Data), `"type":"`+kind+`"`) {
			g.t.Errorf("the contract of %s: %v %s", kind, err, m.Data)
		}
	}
	if said := g.violations.said(); len(said) > 0 {
		g.t.Errorf("the server refused what discovery needs:\n%s", strings.Join(said, "\n"))
	}
}

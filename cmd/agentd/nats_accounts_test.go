package main

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk"
	"agentd/sdk/client"
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

	// The call that is held is not waited for, whoever is told.
	for _, user := range []string{"shop", "operator"} {
		if got, want := g.waitsFor(user, "of-shop"), "ask_question, permission for pay"; got != want {
			t.Errorf("%s is told that the run waits for %q, want %q", user, got, want)
		}
	}

	_, problem := g.expect(cli.ExitFailure, "approvals", "list", "--nats", g.url("shop"))
	contains(t, problem, "this user may not read what people are asked in human.interaction; name the domains that it may with --domain, or connect as an approver")
	_, problem = g.expect(cli.ExitFailure, "provision", "--nats", g.url("shop"))
	contains(t, problem, "this user may not administer JetStream, as provision does; connect as the operator\n  ", "$JS.API.")

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

// waitsFor is what the list of runs of a user says that a run waits for.
func (g *guarded) waitsFor(user, run string) string {
	g.t.Helper()
	for line := range strings.Lines(g.as(user, "runs", "list")) {
		if strings.HasPrefix(line, run+" ") {
			_, what, _ := strings.Cut(line, " ago ")
			return strings.TrimSpace(what)
		}
	}
	g.t.Errorf("%s is not shown run %s", user, run)
	return ""
}

// People publish under their own names alone, also where the agents require none.
func TestNATSConfig_SufficesWithoutRequiredIdentity(t *testing.T) {
	g := startGuarded(t, "identity: optional\n")
	g.serve(func() {})
	g.as("ann", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	g.as("jane", "approvals", "approve", g.request("one").Short)
	contains(t, g.as("ann", "runs", "follow", "one", "--answer", "Current"), "Paid.")
	for _, user := range []string{"ann", "shop"} {
		g.as(user, "run", "clerk", "-m", "Pay", "--subject", "of-"+user, "-d")
		g.request("of-" + user)
		contains(t, g.as(user, "runs", "send", "of-"+user, "Hurry."), "the run has the message")
		contains(t, g.as(user, "runs", "cancel", "of-"+user), "cancelled")
	}
	if said := g.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what a role needs:\n%s", strings.Join(said, "\n"))
	}

	contains(t, g.as("ann", "runs", "list"), "of-ann") // which is hers, as workers tell her

	// A name is worth what the server makes of it, and one that is missing is asked for.
	_, problem := g.expect(cli.ExitFailure, "run", "clerk", "-m", "Pay", "--subject", "two", "-d", "--as", "bob", "--nats", g.url("ann"))
	contains(t, problem, "the NATS server does not let this user publish on agentd.start.clerk.bob")
	g.as("ann", "run", "clerk", "-m", "Pay", "--subject", "three", "-d", "--as", "ann")
	c, err := client.Connect(t.Context(), client.Options{URL: g.url("ann")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Start(t.Context(), client.Request{Agent: "clerk", Input: json.RawMessage(`{"message":"Pay"}`)})
	if !errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) || !strings.Contains(err.Error(), "say as which principal") {
		t.Errorf("a person who names nobody starts a run: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
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
	if err := g.servers[0].Reload(); err != nil {
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

// What a file of an older version left behind is found: its rights, a consumer that pushes, and users beside the streams.
func TestDoctor_FindsSharedAccounts(t *testing.T) {
	g := newGuarded(t, "", func(agents string) string { return agents }, "--monitor", "127.0.0.1:-1")
	g.work()
	monitor := "http://" + g.servers[0].MonitorAddr().String()
	found := func() []string {
		t.Helper()
		_, out, _ := g.agentd("doctor", "--nats", g.url("operator"), "--monitor", monitor, "-o", "json")
		var examined struct {
			Findings []struct{ Code, Message string } `json:"findings"`
		}
		if err := json.Unmarshal([]byte(out), &examined); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		var list []string
		for _, f := range examined.Findings {
			if f.Code != "no_service" {
				list = append(list, f.Code+": "+f.Message)
			}
		}
		return list
	}
	if list := found(); len(list) > 0 {
		t.Errorf("on a server with the new file doctor finds %q", list)
	}
	nc, _ := g.connect("operator")
	const to = "$JS.API.STREAM.DELETE.AGENTD_RUN"
	m, err := nc.Request("$JS.API.CONSUMER.CREATE.AGENTD_DONE.push.agentd.done.>",
		[]byte(`{"stream_name":"AGENTD_DONE","config":{"name":"push","ack_policy":"none","filter_subject":"agentd.done.>","deliver_subject":"`+to+`"}}`), wait)
	if err != nil || strings.Contains(string(m.Data), `"error"`) {
		t.Fatalf("%v %s", err, m.Data)
	}
	config, err := os.ReadFile(g.serverFile(0))
	if err != nil {
		t.Fatal(err)
	}
	beside := strings.Replace(string(config), "users = [", "users = [\n{user: guest, password: secret-of-guest}", 1)
	write(t, g.serverFile(0), beside)
	if err := g.servers[0].Reload(); err != nil {
		t.Fatal(err)
	}
	g.connect("guest")
	want := []string{
		"consumer_pushes: consumer AGENTD_DONE/push has the server publish on " + to + ", with the rights of the server",
		"user_beside_streams: in the account of the streams, AGENTD, are users that are neither workers nor this one: guest",
	}
	if diff := cmp.Diff(want, found()); diff != "" {
		t.Errorf("doctor (-want +got):\n%s", diff)
	}
	write(t, g.serverFile(0), strings.ReplaceAll(string(config), `"$SYS.REQ.USER.INFO"`, ""))
	if err := g.servers[0].Reload(); err != nil {
		t.Fatal(err)
	}
	if list := found(); len(list) != 1 || !strings.HasPrefix(list[0], "accounts_old: ") {
		t.Errorf("with the rights of an older file doctor finds %q", list)
	}
}

// An init event that was refused has no run. Whoever looks for it is told why, and what to do.
func TestRuns_RefusedInitsAreFound(t *testing.T) {
	g := startGuarded(t, "")
	nc, _ := g.connect("operator")
	event := wire.Event{ID: "1", Source: "test", Type: "clerk", Subject: "of-nobody", Data: json.RawMessage(`{"message":"Pay"}`)}
	data, err := event.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request("agentd.start.clerk", data, wait); err != nil {
		t.Fatal(err)
	}
	g.eventually("the refused run is listed", func() bool {
		out := g.as("operator", "runs", "list", "--status", "refused")
		return strings.Contains(out, "of-nobody") && strings.Contains(out, "identity_required")
	})
	for _, verb := range []string{"show", "follow", "cancel"} {
		_, problem := g.expect(cli.ExitFailure, "runs", verb, "of-nobody", "--nats", g.url("operator"))
		contains(t, problem, `run "of-nobody" never began`, "identity_required", "connect as a NATS user (nats://USER:PASSWORD@HOST in NATS_URL, NATS_CREDS or NATS_NKEY)")
	}
}

// What a command suggests has the flags that it was given, and no password.
func TestCommands_ShowNoPassword(t *testing.T) {
	g := startGuarded(t, "")
	out, problem := g.expect(cli.ExitFailure, "run", "clerk", "-m", "Pay", "--subject", "one", "--timeout", "300ms", "--nats", g.url("shop"))
	contains(t, problem, "--nats 'nats://***@"+g.address+"'")
	for _, url := range []string{
		"nats://ann:secret-of/ann@127.0.0.1:1", "nats://ann:secret-of%zz@127.0.0.1:1", "nats://ann:secret-of@x@127.0.0.1:1,nats://bob:secret-of@127.0.0.1:1",
		"ann:secret-of@127.0.0.1:1", "secret-of@127.0.0.1:1", "nats://ann:x,secret-of@127.0.0.1:1", "nats://ann:x secret-of@127.0.0.1:1",
	} {
		o, p := g.expect(cli.ExitFailure, "runs", "list", "--nats", url)
		contains(t, p, "***@127.0.0.1:1")
		out, problem = out+o, problem+p
	}
	if strings.Contains(out+problem, "secret-of") {
		t.Errorf("a password is shown:\n%s\n%s", out, problem)
	}
}

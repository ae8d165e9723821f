package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/requests"
	"agentd/sdk/wire"
)

// connect connects as a user of the server. Errors that the server reports come on the channel.
func (g *guarded) connect(user string) (*nats.Conn, <-chan error) {
	g.t.Helper()
	errs := make(chan error, 16)
	nc, err := nats.Connect(g.url(user), nats.CustomInboxPrefix("_INBOX_agentd_"+user),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case errs <- err:
			default: // the first ones say enough
			}
		}))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(nc.Close)
	return nc, errs
}

// ask sends a request whose answer goes to reply, and waits until the server has handled it.
func (g *guarded) ask(nc *nats.Conn, subject, reply, body string) {
	g.t.Helper()
	if err := nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(body)}); err != nil {
		g.t.Fatal(err)
	}
	if err := nc.FlushTimeout(wait); err != nil {
		g.t.Fatal(err)
	}
}

// on is how many messages each subject of a stream has that matches filter.
func (g *guarded) on(stream, filter string) map[string]uint64 {
	g.t.Helper()
	nc, _ := g.connect("operator")
	defer nc.Close()
	m, err := nc.Request("$JS.API.STREAM.INFO."+stream, []byte(`{"subjects_filter":"`+filter+`"}`), wait)
	if err != nil {
		g.t.Fatal(err)
	}
	var info struct {
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(m.Data, &info); err != nil {
		g.t.Fatal(err)
	}
	return info.State.Subjects
}

// detail is an open request with everything.
func (g *guarded) detail(run string) requests.Detail {
	g.t.Helper()
	var d requests.Detail
	if err := json.Unmarshal([]byte(g.as("jane", "approvals", "show", g.request(run).Short, "-o", "json")), &d); err != nil {
		g.t.Fatal(err)
	}
	return d
}

// The server checks neither the delivery subject of a consumer nor the reply subject of a request against the rights of who
// names it. What it puts there by itself must never be a decision, and must not keep a run from its end.
func TestNATSConfig_WhatTheServerDeliversIsNoDecision(t *testing.T) {
	g := startGuarded(t, "")
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	d := g.detail("one")
	key := wire.NewRunKey("one").String()
	decision := "agentd.in.human_interaction.agentd_permission_request.clerk." + key + "." + d.ID + ".jane"
	pay := "clerk." + key + "." + d.Request.Call

	// A consumer that pushes, by somebody in the account of the streams. The server makes it, and delivers where somebody
	// listens: under the message's own subject.
	operator, _ := g.connect("operator")
	heard, err := operator.SubscribeSync(decision)
	if err != nil || operator.FlushTimeout(wait) != nil {
		t.Fatal(err)
	}
	for i, to := range []string{decision, "agentd.in.local.bank_pay." + pay, "agentd.start.clerk.ann", "$JS.API.STREAM.DELETE.AGENTD_RUN", "$KV.AGENTD_GRANTS.ann.clerk.pay"} {
		name := "push" + string(rune('a'+i))
		m, err := operator.Request("$JS.API.CONSUMER.CREATE.AGENTD_OUT."+name+".agentd.out.human_interaction.>",
			[]byte(`{"stream_name":"AGENTD_OUT","config":{"name":"`+name+`","deliver_policy":"all","ack_policy":"none","deliver_subject":"`+to+
				`","filter_subject":"agentd.out.human_interaction.>"}}`), wait)
		if err != nil || strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("a consumer that pushes to %s: %v %s", to, err, m.Data)
		}
	}
	if m, err := heard.NextMsg(wait); err != nil || !strings.HasPrefix(m.Subject, "agentd.out.human_interaction.") {
		t.Errorf("pushed: %+v, %v", m, err)
	}
	if stored := g.on("AGENTD_IN", "agentd.in.>"); len(stored) != 1 || stored[decision] != 1 { // that she saw it
		t.Errorf("what is pushed is stored as %v", stored)
	}
	// A filter in the body that the request's subject does not have.
	worker, _ := g.connect("worker")
	for _, filter := range []string{`"filter_subject":"agentd.out.local.>"`, `"filter_subjects":["agentd.out.>"]`, `"deliver_policy":"all"`} {
		m, err := worker.Request("$JS.API.CONSUMER.CREATE.AGENTD_OUT.wide.agentd.out.*.clerk.>",
			[]byte(`{"stream_name":"AGENTD_OUT","config":{"name":"wide","ack_policy":"none",`+filter+`}}`), wait)
		if err != nil || !strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("a consumer with %s: %v %s", filter, err, m.Data)
		}
	}
	// A pull whose messages go elsewhere, and answers of the server and of workers.
	reader := "$JS.API.CONSUMER.CREATE.AGENTD_OUT.mine.agentd.out.human_interaction.>"
	g.ask(operator, reader, operator.NewInbox(), `{"stream_name":"AGENTD_OUT","config":{"name":"mine","ack_policy":"none","filter_subject":"agentd.out.human_interaction.>"}}`)
	g.ask(operator, "$JS.API.CONSUMER.MSG.NEXT.AGENTD_OUT.mine", strings.Replace(decision, ".jane", ".ann", 1), `{"batch":1,"no_wait":true}`)
	g.ask(operator, reader, strings.Replace(decision, ".jane", ".bob", 1), `{}`)
	g.ask(operator, "agentd.get.clerk", decision, `{"run":"one"}`)
	for _, taken := range []string{"agentd.in.local.bank_pay." + pay, "agentd.out.local.bank_pay." + pay, "agentd.run." + key, "agentd.spec." + d.Request.Policy} {
		g.ask(operator, "agentd.get.clerk", taken, `{"run":"one"}`)
		g.ask(operator, "$JS.API.CONSUMER.MSG.NEXT.AGENTD_DONE.none", taken, `{"batch":1,"no_wait":true}`)
		g.ask(operator, "agentd.ctl.message.clerk."+key, taken, `no event`)
		g.ask(operator, "agentd.ctl.message.clerk."+key+".shop", taken, `no event`)
	}
	g.eventually("answers of the server on other subjects", func() bool {
		return g.on("AGENTD_RUN", "agentd.run."+key)["agentd.run."+key] > 2 && g.on("AGENTD_IN", "agentd.in.local.>")["agentd.in.local.bank_pay."+pay] > 0
	})
	if got := g.request("one"); got.ID != d.ID {
		t.Fatalf("the request is %+v", got)
	}
	var asked struct {
		Decisions []json.RawMessage `json:"decisions"`
	}
	if err := json.Unmarshal([]byte(g.as("jane", "approvals", "show", d.Short, "-o", "json")), &asked); err != nil || len(asked.Decisions) > 0 {
		t.Errorf("decisions: %s, %v", asked.Decisions, err)
	}

	// All the same the run goes on to its end, and what happened can be verified.
	paid := make(chan struct{}, 4)
	g.serve(func() { paid <- struct{}{} })
	contains(t, g.as("jane", "approvals", "approve", d.Short), "allowed; the call goes out")
	g.answer("one", "Current")
	<-paid
	g.ended("shop", "one")
	found, _ := g.expect(cli.ExitFailure, "audit", "verify", "one", "--nats", g.url("operator"))
	contains(t, found, "what is on agentd.out.local.bank_pay.", "is not an event", "result    3 violations")
	contains(t, g.as("operator", "runs", "show", "one"), "completed")
}

// A right to answer whatever reply subject a request names would be the right to publish on any subject: whoever has it sends
// the request itself.
func TestNATSConfig_AWorkerCannotAnswerItself(t *testing.T) {
	g := startGuarded(t, "")
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	d := g.detail("one")
	key := wire.NewRunKey("one").String()
	decision := "agentd.in.human_interaction.agentd_permission_request.clerk." + key + "." + d.ID + ".jane"
	refused := func(nc *nats.Conn, errs <-chan error) {
		t.Helper()
		g.ask(nc, decision, "", `{}`)
		select {
		case err := <-errs:
			contains(t, strings.ToLower(err.Error()), "permissions violation for publish to", strings.ToLower(decision))
		case <-time.After(wait):
			t.Error("it may publish a decision")
		}
	}
	worker, errs := g.connect("worker")
	own, err := worker.SubscribeSync("agentd.wake.>")
	if err != nil {
		t.Fatal(err)
	}
	g.ask(worker, "agentd.wake.clerk."+key, decision, "")
	if m, err := own.NextMsg(wait); err != nil || m.Reply != decision {
		t.Fatalf("the worker hears %+v, %v", m, err)
	}
	refused(worker, errs)
	// A service may answer whom it hears, and can have nobody ask it in the name of a decision.
	weather, errs := g.connect("svc_local_weather_forecast")
	if _, err := weather.Subscribe("agentd.void.local.weather_forecast.>", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	g.ask(weather, "agentd.in.local.weather_forecast.clerk."+key+".none", decision, "")
	refused(weather, errs)
}

// answer answers the open question of a run as an approver.
func (g *guarded) answer(run, text string) {
	g.t.Helper()
	g.eventually("the question of run "+run, func() bool {
		var items []requests.Item
		if err := json.Unmarshal([]byte(g.as("jane", "approvals", "list", "-o", "json")), &items); err != nil {
			g.t.Fatal(err)
		}
		for _, i := range items {
			if i.Run == run && i.Kind == requests.KindQuestion {
				g.as("jane", "approvals", "answer", i.Short, text)
				return true
			}
		}
		return false
	})
}

package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/requests"
	"agentd/internal/signature"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// signingKey writes an Ed25519 key as a person would have it, and returns it with its path.
func signingKey(t *testing.T, name string) (ed25519.PrivateKey, string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	write(t, path, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	return key, path
}

// decision is an approval of a request as an event, as any front end may make it.
func decision(t *testing.T, i requests.Item, id string, hash string) wire.Event {
	t.Helper()
	data, err := json.Marshal(sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: hash})
	if err != nil {
		t.Fatal(err)
	}
	return wire.Event{
		ID: id, Source: "test", Type: sdk.TypePermissionDecided, Subject: i.Run, Time: time.Now(),
		DataContentType: wire.ContentTypeJSON, Data: data, ParentID: i.ID,
	}
}

// Where decisions must be signed, only those with a key of the domain count, and each for its own request.
func TestApprovals_SignedDecisions(t *testing.T) {
	key, path := signingKey(t, "jane.key")
	stranger, strangers := signingKey(t, "mallory.key")
	public, _ := key.Public().(ed25519.PublicKey)
	settings := "decision_keys: {human.interaction: [\"" + base64.StdEncoding.EncodeToString(public) + "\"]}\n"
	g := startGuardedWith(t, settings, func(agents string) string {
		return strings.Replace(agents, "      scopes:", "      signed: true\n      scopes:", 1)
	})
	paid := make(chan struct{}, 4)
	g.serve(func() { paid <- struct{}{} })
	for _, run := range []string{"one", "two"} {
		g.as("shop", "run", "clerk", "-m", "Pay", "--subject", run, "-d")
	}
	one, two := g.request("one"), g.request("two")
	var shown struct {
		Request sdk.PermissionRequest `json:"request"`
	}
	if err := json.Unmarshal([]byte(g.as("jane", "approvals", "show", one.Short, "-o", "json")), &shown); err != nil {
		t.Fatal(err)
	}
	hash := shown.Request.ArgsHash
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	conn, err := broker.Connect(ctx, broker.ConnectOptions{URL: g.url("jane"), Subjects: wire.DefaultSubjects()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	publish := func(to requests.Item, ev wire.Event) {
		t.Helper()
		subject := "agentd.in.human_interaction.agentd_permission_request.clerk." + wire.NewRunKey(to.Run).String() + "." + to.ID + ".jane"
		if err := conn.Reply(ctx, subject, ev); err != nil {
			t.Fatal(err)
		}
	}
	sign := func(ev wire.Event, key ed25519.PrivateKey) wire.Event {
		t.Helper()
		signed, err := signature.NewSigner(key).Sign(ev)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	changed := sign(decision(t, one, "changed", hash), key)
	changed.Source = "another"
	publish(one, decision(t, one, "unsigned", hash))
	publish(one, sign(decision(t, one, "stranger", hash), stranger))
	publish(one, changed)
	publish(one, sign(decision(t, two, "replayed", hash), key)) // a good decision on another request with the same arguments
	const unsigned = "the decision is not signed with a key of the domain it was asked in"
	contains(t, g.letter("replayed"), "no run waits for this message")
	g.eventually("the refusals in the journal", func() bool {
		return strings.Count(g.as("operator", "approvals", "log", "one", "-o", "json"), unsigned) == 3
	})
	_, problem := g.expect(cli.ExitFailure, "approvals", "approve", one.Short, "--nats", g.url("jane"))
	contains(t, problem, "wants a signed decision: name the key to sign with")
	_, problem = g.expect(cli.ExitFailure, "approvals", "approve", one.Short, "--key", strangers, "--nats", g.url("jane"))
	contains(t, problem, "is not signed with a key of the domain", "still open")
	select {
	case <-paid:
		t.Fatal("a decision without a good signature had the call made")
	default:
	}
	contains(t, g.as("jane", "approvals", "approve", one.Short, "--key", path), "allowed; the call goes out")
	<-paid
	g.as("jane", "approvals", "deny", two.Short, "--reason", "no", "--key", path)
	log := g.as("operator", "approvals", "log", "one")
	contains(t, log, "jane: allow, which does not count: "+unsigned, "jane: allow, which does not count: unknown_run: no run waits for this message", "viewed")
	contains(t, g.as("operator", "approvals", "log", "one", "-o", "json"), `"event": "decided"`, `"who": "jane"`)
	g.as("operator", "audit", "verify", "one", "two")
}

// The trail has every step with what the auditor asks for, and verifies without anything else.
func TestAudit_ExportedTrailIsVerified(t *testing.T) {
	g := startGuarded(t, "")
	paid := make(chan struct{}, 1)
	g.serve(func() { paid <- struct{}{} })
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	g.as("jane", "approvals", "approve", g.request("one").Short)
	<-paid
	g.eventually("the result", func() bool {
		return strings.Contains(g.as("operator", "audit", "export", "one"), `"event":"returned"`)
	})
	trail := g.as("operator", "audit", "export", "one")
	contains(t, trail, `"format":"agentd.audit/1"`, `"event":"called"`, `"event":"requested"`, `"event":"decided"`, `"event":"made"`, `"event":"returned"`,
		`"who":"jane"`, `"policy":"`, `"rule":"money"`, `"schema":"#/bank/pay/1.0.0"`, `"args_sha256":"`)
	path := filepath.Join(t.TempDir(), "one.jsonl")
	write(t, path, trail)
	t.Setenv("NATS_URL", "")
	out, _ := g.expect(cli.ExitOK, "audit", "verify", "--file", path)
	contains(t, out, "run       one", "nothing was changed")
	write(t, path, strings.Replace(trail, `"who":"jane"`, `"who":"jade"`, 1))
	_, problem := g.expect(cli.ExitFailure, "audit", "verify", "--file", path)
	contains(t, problem, "is not what was exported: ", "line ")
}

// letter waits until an event is among the dead letters, and returns the reason in words.
func (g *guarded) letter(event string) (detail string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), wait)
	defer cancel()
	conn, err := broker.Connect(ctx, broker.ConnectOptions{URL: g.url("operator"), Subjects: wire.DefaultSubjects()})
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			g.t.Error(err)
		}
	}()
	err = conn.Watch(ctx, streams.DLQ, []string{"agentd.dlq.>"}, func(d broker.Delivery) bool {
		ev, err := wire.DecodeEvent(d.Headers(), d.Data())
		detail = d.Header("agentd-detail")
		return err != nil || ev.ID != event
	})
	if err != nil {
		g.t.Fatalf("%s is not a dead letter: %v", event, err)
	}
	return detail
}

// eventually waits until something holds.
func (g *guarded) eventually(what string, holds func() bool) {
	g.t.Helper()
	g.holds(what, holds)
}

// holds waits until something does.
func (s *system) holds(what string, holds func() bool) {
	s.t.Helper()
	poll.Until(s.t, wait, what, holds)
}

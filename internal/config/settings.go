package config

import (
	"cmp"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"agentd/internal/days"
	"agentd/internal/signature"
	"agentd/internal/strict"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// settings puts the file over the defaults.
func (l *loader) settings(root *strict.Node) {
	c := l.cfg
	c.apply(&l.Reader, root)
	slices.SortFunc(c.Models, func(a, b Provider) int { return cmp.Compare(a.Name, b.Name) })
	for _, path := range []*string{
		&c.NATS.Creds, &c.NATS.NKey, &c.NATS.CA, &c.NATS.Cert, &c.NATS.Key, &c.Redis.CA, &c.Redis.Cert, &c.Redis.Key, &c.Approvals.Key,
	} {
		if *path != "" {
			*path = l.path(*path)
		}
	}
	if root.Get("data").Present() {
		c.Data = l.path(c.Data)
	}
	for _, server := range []*strict.Node{root.Get("nats"), root.Get("redis")} {
		if cert, key := server.Get("cert"), server.Get("key"); cert.Present() != key.Present() {
			l.Faultf(server.Position, "a certificate needs both cert and key")
		}
	}
	for _, d := range root.Get("approvals", "domains").Items() {
		if d.Text() != "*" {
			l.Note(d, wire.CheckDomain(d.Text()))
		}
	}
	for _, role := range root.Get("console", "oidc", "roles").Items() {
		for _, d := range role.Get("domains").Items() {
			l.Note(d, wire.CheckDomain(d.Text()))
		}
		if domains := role.Get("domains"); domains.Present() && role.Get("role").Text() != ConsoleApprover {
			l.Faultf(domains.Position, "only an approver has domains")
		}
	}
	l.encryption(root.Get("encryption"))
	c.Identity = root.Get("identity").Text() == "required"
	for _, domain := range root.Get("decision_keys").Items() {
		for _, key := range domain.Items() {
			l.decisionKey(domain.Name, key)
		}
	}
	l.Decode(root.Get("mcp"), &c.MCP)
}

// checkAnswersAge refuses an age that somebody chose, if it is shorter than what is configured needs. One that nobody chose is made
// longer instead: whoever writes how long a question may wait need not know where its answer is kept.
func (l *loader) checkAnswersAge(chosen *strict.Node) {
	if need := l.cfg.AnswersNeeded(); chosen.Present() && l.cfg.NATS.AnswersAge > 0 && l.cfg.NATS.AnswersAge < need.For {
		l.Faultf(chosen.Position, "nats.answers_age: expected at least %s, got %s: %s", days.Text(need.For), days.Text(l.cfg.NATS.AnswersAge), need.Why)
	}
}

// checkCallsKept refuses what is shorter than messages of a run may be on their way when it ends.
func (l *loader) checkCallsKept(chosen *strict.Node) {
	if kept := l.cfg.Retention.Calls; chosen.Present() && kept > 0 && kept < sdk.LeastCallsKept {
		l.Faultf(chosen.Position, "retention.calls: expected at least %s, or 0, got %s", days.Text(sdk.LeastCallsKept), days.Text(kept))
	}
}

// checkHot refuses what is shorter than anything looks back for what was written lately.
func (l *loader) checkHot(chosen *strict.Node) {
	if hot := l.cfg.Retention.Hot; chosen.Present() && hot > 0 && hot < sdk.LeastHot {
		l.Faultf(chosen.Position, "%s", leastHot(hot))
	}
}

func leastHot(hot time.Duration) string {
	return fmt.Sprintf("retention.hot: expected at least %s, or 0, got %s", days.Text(sdk.LeastHot), days.Text(hot))
}

// decisionKey reads a public key, after the principal whose key it is and "=" when it is that of one alone.
func (l *loader) decisionKey(domain string, n *strict.Node) {
	text, key := n.Text(), sdk.DecisionKey{}
	// A key in base64 ends with "=": nothing comes after it.
	if name, rest, bound := strings.Cut(text, "="); bound && rest != "" && !strings.Contains(name, "/") {
		if name == "" {
			l.Faultf(n.Position, "a principal must come before =")
			return
		}
		if err := wire.CheckPrincipal(name); err != nil {
			l.Note(n, err)
			return
		}
		key.Principal, text = name, rest
	}
	var err error
	if key.Public, err = l.publicKey(text); err != nil {
		l.Faultf(n.Position, "%s", err)
		return
	}
	if l.cfg.Keys == nil {
		l.cfg.Keys = signature.Keys{}
	}
	known := l.cfg.Keys[domain]
	if slices.ContainsFunc(known, func(k sdk.DecisionKey) bool { return k.Public.Equal(key.Public) }) {
		l.Faultf(n.Position, "the domain has this key twice: it counts once")
		return
	}
	l.cfg.Keys[domain] = append(known, key)
}

// publicKey is an Ed25519 key: the path of a PEM file, or the 32 bytes in base64.
func (l *loader) publicKey(text string) (ed25519.PublicKey, error) {
	if raw, err := base64.StdEncoding.DecodeString(text); err == nil && len(raw) == ed25519.PublicKeySize {
		return raw, nil
	}
	if !strings.Contains(text, "/") && !strings.HasSuffix(text, ".pem") && !strings.HasSuffix(text, ".pub") {
		return nil, errors.New("want an Ed25519 public key: 32 bytes in base64, or the path of a PEM file")
	}
	path := l.path(text)
	l.watch(path)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New(reading(path, err))
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New(text + " is not a PEM file")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	public, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, errors.New(text + " has no Ed25519 key")
	}
	return public, nil
}

package config

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/signature"

	"agentd/internal/approval"
	"agentd/internal/config/strict"
	"agentd/sdk"
)

// permissionsFile is an agent's permissions. Its lists are short for rules: deny comes before require, and both before the
// rules that are written out.
type permissionsFile struct {
	At      strict.Position
	Deny    []words `yaml:"deny"`
	Require []words `yaml:"require"`
	Rules   []struct {
		At      strict.Position
		Name    words      `yaml:"name"`
		Tools   []words    `yaml:"tools"`
		When    words      `yaml:"when"`
		Labels  []words    `yaml:"labels"`
		Verdict words      `yaml:"verdict"`
		Reason  words      `yaml:"reason"`
		Risk    words      `yaml:"risk"`
		Terms   *termsFile `yaml:"terms"`
	} `yaml:"rules"`
	termsFile
}

// termsFile is how an approver is asked.
type termsFile struct {
	Mode    words    `yaml:"mode"`
	Domain  words    `yaml:"domain"`
	Expires duration `yaml:"expires"`
	Remind  duration `yaml:"remind"`
	// OnExpiry is "deny" or "escalate".
	OnExpiry words `yaml:"on_expiry"`
	Escalate []struct {
		At      strict.Position
		Domain  words    `yaml:"domain"`
		Expires duration `yaml:"expires"`
	} `yaml:"escalate"`
	Scopes    []words            `yaml:"scopes"`
	Quorum    number             `yaml:"quorum"`
	FourEyes  strict.Value[bool] `yaml:"four_eyes"`
	Approvers []words            `yaml:"approvers"`
	Signed    strict.Value[bool] `yaml:"signed"`
}

// permissions is nil where the file has none. An empty or unreadable policy is a fault: it must not read as "all allowed".
func (l *loader) permissions(f *permissionsFile) *sdk.PermissionPolicy {
	if f == nil || f.At.Line == 0 { // absent, or no mapping, which is noted
		return nil
	}
	policy := &sdk.PermissionPolicy{Terms: l.terms(&f.termsFile)}
	if len(f.Deny) > 0 {
		policy.Rules = append(policy.Rules, sdk.PermissionRule{Name: "deny", Tools: texts(f.Deny), Verdict: sdk.PermissionDeny})
	}
	if len(f.Require) > 0 {
		policy.Rules = append(policy.Rules, sdk.PermissionRule{Name: "require", Tools: texts(f.Require), Verdict: sdk.PermissionAsk})
	}
	for i := range f.Rules {
		r := &f.Rules[i]
		rule := sdk.PermissionRule{
			Name: r.Name.V, Tools: texts(r.Tools), When: r.When.V, Labels: texts(r.Labels),
			Verdict: sdk.PermissionVerdict(r.Verdict.Or(string(sdk.PermissionAsk))), Reason: r.Reason.V, Risk: r.Risk.V,
		}
		if r.Terms != nil {
			terms := l.terms(r.Terms)
			rule.Terms = &terms
		}
		policy.Rules = append(policy.Rules, rule)
	}
	_, err := approval.Compile(*policy, approval.Options{Grants: approval.NoGrants{}, Identity: l.cfg.Identity, Keys: l.cfg.Keys})
	l.Note(f.At, err)
	return policy
}

func (l *loader) terms(f *termsFile) sdk.PermissionPolicyTerms {
	l.domain(f.Domain)
	terms := sdk.PermissionPolicyTerms{
		Mode: sdk.PermissionMode(f.Mode.V), Domain: f.Domain.V, TimeoutMillis: l.millis(f.Expires), Quorum: f.Quorum.V,
		RemindMillis: l.millis(f.Remind), FourEyes: f.FourEyes.V, Approvers: texts(f.Approvers), Signed: f.Signed.V,
	}
	for _, s := range f.Scopes {
		terms.Scopes = append(terms.Scopes, sdk.GrantScope(s.V))
	}
	for i := range f.Escalate {
		stage := &f.Escalate[i]
		l.domain(stage.Domain)
		timeout := l.millis(stage.Expires)
		if !stage.Expires.Present() {
			timeout = sdk.DefaultPermissionTimeout.Milliseconds()
		}
		terms.Escalate = append(terms.Escalate, sdk.PermissionStage{Domain: stage.Domain.V, TimeoutMillis: timeout})
	}
	switch {
	case !f.OnExpiry.Present():
	case f.OnExpiry.V == "deny" && len(f.Escalate) == 0:
	case f.OnExpiry.V == "escalate" && len(f.Escalate) > 0:
	default:
		l.Faultf(f.OnExpiry.Position, `on_expiry %q: want "deny", or "escalate" with the domains under escalate`, f.OnExpiry.V)
	}
	return terms
}

func texts(values []words) []string {
	var list []string
	for _, v := range values {
		list = append(list, v.V)
	}
	return list
}

// identity reads whether principals are required, and the keys that decisions are signed with, by domain.
func (l *loader) identity(f *file) {
	if f.Identity.Present() {
		l.Note(f.Identity.Position, checkOneOf("identity", f.Identity.V, "optional", "required"))
		l.cfg.Identity = f.Identity.V == "required"
	}
	for _, domain := range f.DecisionKeys {
		for _, key := range domain.Value {
			principal, public, err := l.decisionKey(key)
			if err != nil {
				l.Faultf(key.Position, "decision_keys: %s", err)
				continue
			}
			if l.cfg.Keys == nil {
				l.cfg.Keys = signature.Keys{}
			}
			known := l.cfg.Keys[domain.Key.V]
			if slices.ContainsFunc(known, func(k sdk.DecisionKey) bool { return k.Public.Equal(public) }) {
				l.Faultf(key.Position, "decision_keys: the domain has this key twice: it counts once")
				continue
			}
			l.cfg.Keys[domain.Key.V] = append(known, sdk.DecisionKey{Public: public, Principal: principal})
		}
	}
}

// decisionKey is a public key, after the principal whose key it is and "=" when it is that of one alone.
func (l *loader) decisionKey(key words) (principal string, public ed25519.PublicKey, err error) {
	// A key in base64 ends with "=": nothing comes after it.
	if name, rest, bound := strings.Cut(key.V, "="); bound && rest != "" && !strings.Contains(name, "/") {
		if name == "" || len(name) > maxPrincipal || strings.Trim(name, principalLetters) != "" {
			return "", nil, fmt.Errorf("%q cannot be a principal: want 1 to %d letters, digits, _ and -", name, maxPrincipal)
		}
		principal, key.V = name, rest
	}
	public, err = l.publicKey(key)
	return principal, public, err
}

// Names of principals, which are subject tokens.
const (
	maxPrincipal     = 128
	principalLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)

// publicKey is an Ed25519 key: the path of a PEM file, or the 32 bytes in base64.
func (l *loader) publicKey(key words) (ed25519.PublicKey, error) {
	if raw, err := base64.StdEncoding.DecodeString(key.V); err == nil && len(raw) == ed25519.PublicKeySize {
		return raw, nil
	}
	if !strings.Contains(key.V, "/") && !strings.HasSuffix(key.V, ".pem") && !strings.HasSuffix(key.V, ".pub") {
		return nil, errors.New("want an Ed25519 public key: 32 bytes in base64, or the path of a PEM file")
	}
	data, ok := l.readFile(key.Position, l.path(key.V))
	if !ok {
		return nil, errors.New("the key is missing")
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New(key.V + " is no PEM file")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	public, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, errors.New(key.V + " has no Ed25519 key")
	}
	return public, nil
}

package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"agentd/internal/approval"
	"agentd/internal/strict"
	"agentd/sdk"
)

// termsFile is what the file says of how an approver is asked; as agentFile.
type termsFile struct {
	sdk.PermissionPolicyTerms
	Expires  time.Duration `json:"expires"`
	Remind   time.Duration `json:"remind"`
	OnExpiry string        `json:"on_expiry"`
	Escalate []struct {
		Domain  string        `json:"domain"`
		Expires time.Duration `json:"expires"`
	} `json:"escalate"`
}

// ruleFile is what the file says of a rule; as agentFile.
type ruleFile struct {
	sdk.PermissionRule
	Terms json.RawMessage `json:"terms"`
}

// permissions is nil where the file has none. An empty policy is a fault: it must not read as "all allowed". Its lists are
// short for rules: deny comes before require, and both before the rules that are written out.
func (l *loader) permissions(n *strict.Node) *sdk.PermissionPolicy {
	if !n.Present() {
		return nil
	}
	policy := &sdk.PermissionPolicy{Terms: l.terms(n)}
	for _, short := range []sdk.PermissionRule{{Name: "deny", Verdict: sdk.PermissionDeny}, {Name: "require", Verdict: sdk.PermissionAsk}} {
		if short.Tools = n.Get(short.Name).Texts(); len(short.Tools) > 0 {
			policy.Rules = append(policy.Rules, short)
		}
	}
	for _, item := range n.Get("rules").Items() {
		rule := ruleFile{PermissionRule: sdk.PermissionRule{Verdict: sdk.PermissionAsk}}
		l.Decode(item, &rule)
		if item.Get("terms").Present() {
			terms := l.terms(item.Get("terms"))
			rule.PermissionRule.Terms = &terms
		}
		policy.Rules = append(policy.Rules, rule.PermissionRule)
	}
	_, err := approval.Compile(*policy, approval.Options{Grants: approval.NoGrants{}, Identity: l.cfg.Identity, Keys: l.cfg.Keys})
	if err != nil {
		e := sdk.AsError(err)
		for i, f := range e.Faults {
			e.Faults[i].Path = permissionPath(n, f.Path)
		}
		l.Note(n, e)
	}
	return policy
}

// rulePath is the path of a fault in a policy: the index of a rule, and what of it.
var rulePath = regexp.MustCompile(`^\$\.permissions\.rules\[(\d+)\](.*)$`)

// permissionPath is where in the file's permissions stands what has that path in the spec.
func permissionPath(n *strict.Node, path string) string {
	m := rulePath.FindStringSubmatch(path)
	if m == nil {
		return "$"
	}
	rule, _ := strconv.Atoi(m[1]) // digits by the pattern, and an index of what was given
	var lists []string
	for _, short := range []string{"deny", "require"} {
		if len(n.Get(short).Texts()) > 0 {
			lists = append(lists, "$."+short)
		}
	}
	short := rule < len(lists)
	at := fmt.Sprintf("$.rules[%d]", rule-len(lists))
	switch terms, isTerms := strings.CutPrefix(m[2], ".terms"); {
	case isTerms && (short || !n.At(at).Get("terms").Present()):
		return "$" + terms
	case short:
		return lists[rule] + strings.TrimPrefix(m[2], ".tools")
	}
	return at + m[2]
}

// review are the terms under which people approve plans.
func (l *loader) review(n *strict.Node) *sdk.PermissionPolicyTerms {
	terms := l.terms(n)
	faults := approval.CheckTerms(terms, "$", approval.Options{Grants: approval.NoGrants{}, Identity: l.cfg.Identity, Keys: l.cfg.Keys})
	if len(faults) > 0 {
		l.Note(n, &sdk.Error{Code: sdk.CodeConfig, Message: "plans cannot be approved like this", Faults: faults})
	}
	return &terms
}

func (l *loader) terms(n *strict.Node) sdk.PermissionPolicyTerms {
	var f termsFile
	l.Decode(n, &f)
	l.domain(n.Get("domain"))
	terms := f.PermissionPolicyTerms
	terms.TimeoutMillis, terms.RemindMillis = f.Expires.Milliseconds(), f.Remind.Milliseconds()
	for i, stage := range f.Escalate {
		l.domain(n.Get("escalate").Items()[i].Get("domain"))
		if stage.Expires == 0 {
			stage.Expires = sdk.DefaultPermissionTimeout
		}
		terms.Escalate = append(terms.Escalate, sdk.PermissionStage{Domain: stage.Domain, TimeoutMillis: stage.Expires.Milliseconds()})
	}
	if f.OnExpiry != "" && (f.OnExpiry == "escalate") != (len(f.Escalate) > 0) {
		l.Faultf(n.Get("on_expiry").Position, `on_expiry %q: want "deny", or "escalate" with the domains under escalate`, f.OnExpiry)
	}
	return terms
}

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
	// paths are where the rules stand in the file.
	var paths []string
	for _, short := range []sdk.PermissionRule{{Name: "deny", Verdict: sdk.PermissionDeny}, {Name: "require", Verdict: sdk.PermissionAsk}} {
		if short.Tools = n.Get(short.Name).Texts(); len(short.Tools) > 0 {
			policy.Rules, paths = append(policy.Rules, short), append(paths, "$."+short.Name)
		}
	}
	for i, item := range n.Get("rules").Items() {
		rule := ruleFile{PermissionRule: sdk.PermissionRule{Verdict: sdk.PermissionAsk}}
		l.Decode(item, &rule)
		if item.Get("terms").Present() {
			terms := l.terms(item.Get("terms"))
			rule.PermissionRule.Terms = &terms
		}
		policy.Rules, paths = append(policy.Rules, rule.PermissionRule), append(paths, fmt.Sprintf("$.rules[%d]", i))
	}
	_, err := approval.Compile(*policy, approval.Options{Grants: approval.NoGrants{}, Identity: l.cfg.Identity, Keys: l.cfg.Keys})
	if err != nil {
		l.policyFaults(sdk.AsError(err), n, paths)
	}
	return policy
}

// rulePath is the path of a fault of approval.Compile: the index of a rule, and what of it.
var rulePath = regexp.MustCompile(`^\$\.permissions\.rules\[(\d+)\](.*)$`)

// policyFaults puts the faults of approval.Compile where the rules and terms stand in the file.
func (l *loader) policyFaults(err *sdk.Error, n *strict.Node, paths []string) {
	for i, f := range err.Faults {
		m := rulePath.FindStringSubmatch(f.Path)
		if m == nil {
			err.Faults[i].Path = "$"
			continue
		}
		rule, _ := strconv.Atoi(m[1]) // digits by the pattern, and an index of what was given
		path, of := paths[rule], m[2]
		switch terms, isTerms := strings.CutPrefix(of, ".terms"); {
		case isTerms && !n.At(path).Get("terms").Present():
			path, of = "$", terms
		case !strings.HasPrefix(path, "$.rules"):
			of = strings.TrimPrefix(of, ".tools")
		}
		err.Faults[i].Path = path + of
	}
	l.Note(n, err)
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

package config

import (
	"slices"
	"strings"

	"agentd/sdk/wire"

	"agentd/internal/config/strict"
	"agentd/sdk"
)

// builtin is where agentd itself names contracts and domains.
var builtin = strict.Position{File: "agentd"}

// domain notes that a domain is named, by a service or a permission policy. checkDomains says whether it may be.
func (l *loader) domain(name words) {
	if name.V == "" {
		return
	}
	l.Note(name.Position, wire.CheckDomain(name.V))
	l.domains = append(l.domains, name)
}

// checkDomains collects the domains that are known, refuses those that would share a subject token, and every other that
// is named: a call in a lane that nobody listens to is never answered. The file lists them in domains:; a contract makes
// its own domain known, because whoever serves the contract listens there.
func (l *loader) checkDomains(listed []words) {
	tokens := map[string]string{}
	know := func(at strict.Position, name string) {
		token := wire.DomainToken(name)
		other, taken := tokens[token]
		switch {
		case name == wire.LocalDomain:
			l.Faultf(at, "domain %q is the lane of calls without a domain: leave the domain out", name)
		case !taken:
			tokens[token] = name
		case other != name:
			l.Faultf(at, "domains %q and %q have the same name in subjects: %s", other, name, token)
		}
	}
	know(builtin, "")
	know(builtin, sdk.HumanDomain)
	for _, d := range listed {
		l.Note(d.Position, wire.CheckDomain(d.V))
		know(d.Position, d.V)
	}
	for _, k := range l.known {
		know(k.at, k.Domain)
	}
	for _, name := range tokens {
		if name != "" {
			l.cfg.Domains = append(l.cfg.Domains, name)
		}
	}
	slices.Sort(l.cfg.Domains)
	for _, d := range l.domains {
		if d.V != wire.LocalDomain && !slices.Contains(l.cfg.Domains, d.V) && wire.CheckDomain(d.V) == nil && !l.broken {
			l.Faultf(d.Position, "domain %q is not known; add it to domains: if somebody serves it. There is %s",
				d.V, strings.Join(append(slices.Clone(l.cfg.Domains), wire.LocalDomain), ", "))
		}
	}
}

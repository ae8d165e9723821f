package config

import (
	"slices"

	"agentd/internal/spelling"
	"agentd/internal/strict"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// domain notes that a domain is named, by a service or a permission policy. checkDomains says whether it may be.
func (l *loader) domain(name *strict.Node) {
	if !name.Present() {
		return
	}
	l.Note(name, wire.CheckDomain(name.Text()))
	l.domains = append(l.domains, name)
}

// checkDomains collects the domains that are known, refuses those that would share a subject token, and every other that
// is named: a call in a lane that nobody listens to is never answered. The file lists them in domains:; a contract makes
// its own domain known, because whoever serves the contract listens there.
func (l *loader) checkDomains(listed *strict.Node) {
	tokens := map[string]string{}
	know := func(at *strict.Node, name string) {
		token := wire.DomainToken(name)
		other, taken := tokens[token]
		switch {
		case name == wire.LocalDomain:
			l.Faultf(at.Position, "domain %q is the lane of calls without a domain: leave the domain out", name)
		case !taken:
			tokens[token] = name
		case other != name:
			l.Faultf(at.Position, "domains %q and %q have the same name in subjects: %s", other, name, token)
		}
	}
	know(builtin, "")
	know(builtin, sdk.HumanDomain)
	for _, d := range listed.Items() {
		l.Note(d, wire.CheckDomain(d.Text()))
		know(d, d.Text())
	}
	for _, k := range l.known {
		know(k.node.Get("domain"), k.Domain)
	}
	for _, name := range tokens {
		if name != "" {
			l.cfg.Domains = append(l.cfg.Domains, name)
		}
	}
	slices.Sort(l.cfg.Domains)
	for _, d := range l.domains {
		if d.Text() != wire.LocalDomain && !slices.Contains(l.cfg.Domains, d.Text()) && wire.CheckDomain(d.Text()) == nil && !l.broken {
			l.Faultf(d.Position, "domain %q is not known; add it to domains: if somebody serves it%s",
				d.Text(), spelling.Suggest(d.Text(), append(slices.Clone(l.cfg.Domains), wire.LocalDomain)))
		}
	}
}

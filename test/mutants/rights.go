package main

const rights = "internal/accounts.rights."

var (
	attacks  = test{"cmd/agentd", "TestNATSConfig_AttackTable/one_server"}
	forgery  = test{"cmd/agentd", "TestNATSConfig_AForgedDeadLetterIsNotRedriven"}
	accounts = test{"cmd/agentd", "TestNATSConfig_SufficesWithoutRequiredIdentity"}
)

// ofRights are noticed on servers that run what nats-config writes.
var ofRights = []mutant{
	{"a client's account imports the deletion of a stream", around(rights+"client", `
		u := original(m)
		u.Publish = append(u.Publish, api+"STREAM.DELETE.AGENTD_RUN")
		return u`), attacks},
	{"a person's account imports the deletion of consumers by a wildcard", around(rights+"person", `
		u := original(m)
		u.Publish = append(u.Publish, api+"CONSUMER.DELETE.AGENTD_OUT.*")
		return u`), attacks},
	{"a client makes consumers", around(rights+"client", "u := original(m)\nu.Publish = append(u.Publish, r.create(\"AGENTD_DONE\", \"agentd.done.clerk.>\")...)\nreturn u"), attacks},
	{"an approver decides as anybody", around(rights+"approver", `
		u := original(m)
		u.Publish = append(u.Publish, r.answers("human_interaction", "agentd_permission_request")+".*")
		return u`), attacks},
	{"a service acknowledges the calls of others", around(rights+"service", `
		u := original(s)
		u.Publish = append(u.Publish, ack+"AGENTD_OUT.>")
		return u`), attacks},
	{"a service answers under the names of people", around(rights+"service", `
		u := original(s)
		u.Publish = append(u.Publish, r.answers(wire.DomainToken(s.Domain), wire.NameToken(s.Type))+".*")
		return u`), attacks},
	{"an operator decides", around(rights+"operator", "u := original()\nu.Deny = nil\nreturn u"), attacks},
	{"what a letter says of its origin is believed", condition("internal/deadletter.Letter.Redrivable", "Forged", "false"), forgery},
	{"who is not required to have a name has none", around("internal/setup.FindPrincipal", `
		if !cfg.Identity {
			return Principal{}, nil
		}
		return original(cfg, flag)`), accounts},
}

package main

const rights = "internal/accounts.rights."

var (
	attacks  = test{"cmd/agentd", "TestNATSConfig_AttackTable/one_server"}
	forgery  = test{"cmd/agentd", "TestNATSConfig_AForgedDeadLetterIsNotRedriven"}
	accounts = test{"cmd/agentd", "TestNATSConfig_SufficesWithoutRequiredIdentity"}

	registers = test{"internal/contracts", "TestRegistry_NoContractPassesForAnother"}
	unjudged  = test{"test/pipeline", "TestGrant_ADenialCoversWhatItsPatternCannotJudge"}
	denied    = test{"test/pipeline", "TestGrant_ADenialHoldsForWhatThePolicyAllows"}
	keys      = test{"internal/login", "TestPerson_AsksForKeysNoMoreThanOnceInASecond"}
)

// ofRights are noticed on servers that run what nats-config writes, and where somebody tries to take another's place.
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
	{"a uri is that of whoever published it last", condition("internal/contracts.Registry.Apply", "owner Type", "false"), registers},
	{"a version goes by a uri that reads as a type", condition("internal/contracts.Published.isNamed", "CheckName", "true"), registers},
	{"a denial covers nothing that its pattern cannot judge", condition(core+"grants.covers", "known Deny", "false"), unjudged},
	{"a denial holds for nothing that the policy allows", call(core+"Admission.Rule", "denial", "nil"), denied},
	{"a denial holds for nothing that waits for its turn", condition("internal/runner.activation.forbidden", "denial held", "false"), denied},
	{"a provider is asked for its keys for every forged login", condition(login+"mayAskForKeys", "keysAsked keysPause", "false"), keys},
	{"who is not required to have a name has none", around("internal/setup.FindPrincipal", `
		if !cfg.Identity {
			return Principal{}, nil
		}
		return original(cfg, flag)`), accounts},
}

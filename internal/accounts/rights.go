package accounts

import (
	"slices"
	"strings"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/sdk"
)

// rights makes the users' rights.
type rights struct {
	s wire.Subjects
	Plan
}

const (
	api = "$JS.API."
	ack = "$JS.ACK."
	// discovery are the requests of the NATS service API (`nats micro ls`).
	discovery = "$SRV.>"
)

func (r rights) on(kind wire.Kind, tokens ...string) string {
	return r.s.Root() + "." + string(kind) + "." + strings.Join(tokens, ".")
}

func (r rights) stream(z broker.Zone) string { return broker.StreamName(r.s, z) }

// The buckets' streams.
func (r rights) grants() string    { return "KV_" + broker.GrantsBucket(r.s) }
func (r rights) contracts() string { return "KV_" + broker.RegistryBucket(r.s) }

func (r rights) inbox(name string) string { return broker.InboxPrefix(r.s, name) + ".>" }

// consume is the right to read a consumer that provisioning made, and to settle what it delivers.
func (r rights) consume(ref broker.ConsumerRef) []string {
	name := r.stream(ref.Zone) + "." + ref.Name
	return []string{api + "CONSUMER.INFO." + name, api + "CONSUMER.MSG.NEXT." + name, ack + name + ".>"}
}

// read is the right to look at the messages of a stream on the filters, by consumers that the reader makes and that
// acknowledge nothing. The server holds a consumer to the filter in the subject of the request that made it. The names of
// such consumers are random, so those that provisioning made are taken out: see keepOff.
func (r rights) read(stream string, filters ...string) []string {
	allow := []string{api + "CONSUMER.MSG.NEXT." + stream + ".*", api + "CONSUMER.DELETE." + stream + ".*"}
	for _, f := range filters {
		allow = append(allow, api+"CONSUMER.CREATE."+stream+".*."+f)
	}
	return allow
}

// keepOff forbids who may read a zone to change or delete the consumers that provisioning made, and to read those that are not
// their own.
func (r rights) keepOff(z broker.Zone, own ...broker.ConsumerRef) []string {
	var deny []string
	for _, ref := range broker.Consumers(r.s, r.Broker) {
		if ref.Zone != z {
			continue
		}
		name := r.stream(z) + "." + ref.Name
		deny = append(deny, api+"CONSUMER.DELETE."+name, api+"CONSUMER.CREATE."+name, api+"CONSUMER.CREATE."+name+".>")
		if !slices.Contains(own, ref) {
			deny = append(deny, api+"CONSUMER.MSG.NEXT."+name)
		}
	}
	return deny
}

func (r rights) worker() User {
	u := User{Name: r.WorkerName, Role: RoleWorker, About: "workers that serve the agents"}
	u.Publish = append(u.Publish, r.askers()...)
	u.Publish = append(u.Publish, r.s.All(wire.KindDone), r.s.All(wire.KindDLQ), "$KV."+broker.GrantsBucket(r.s)+".>")
	u.Subscribe = []string{r.inbox(u.Name), r.s.All(wire.KindWake), discovery}
	seen := map[broker.ConsumerRef]bool{}
	for _, a := range r.Broker.Agents {
		agent, kind := wire.NameToken(a.Name), wire.NameToken(a.Type)
		u.Publish = append(u.Publish,
			r.on(wire.KindOut, "*", "*", agent, ">"), r.on(wire.KindVoid, "*", "*", agent, ">"), r.on(wire.KindTimer, agent, ">"),
			r.on(wire.KindStream, agent, ">"), r.on(wire.KindWake, agent, ">"), r.on(wire.KindIn, "*", kind, ">"),
			r.on(wire.KindFire, agent, ">"))
		u.Subscribe = append(u.Subscribe, r.s.Get(a.Name), r.s.Contract(a.Type))
		for _, ref := range broker.AgentConsumers(a.Name) {
			seen[ref] = true
		}
	}
	if r.Journals {
		u.Publish = append(u.Publish, r.s.All(wire.KindRun), r.s.All(wire.KindBlob), r.s.All(wire.KindSpec),
			// Histories that retention removes. A purge's subject does not say of what, so this is any of them.
			api+"STREAM.PURGE."+r.stream(broker.ZoneRun), api+"DIRECT.GET."+r.stream(broker.ZoneRun), api+"DIRECT.GET."+r.stream(broker.ZoneRun)+".>")
	}
	u.Publish = append(u.Publish, api+"DIRECT.GET."+r.grants()+".>", api+"CONSUMER.CREATE."+r.contracts()+".*",
		api+"CONSUMER.MSG.NEXT."+r.contracts()+".*", api+"CONSUMER.DELETE."+r.contracts()+".*")
	for _, ref := range broker.Consumers(r.s, r.Broker) {
		if seen[ref] || ref.Name == broker.UnroutedConsumer {
			u.Publish = append(u.Publish, r.consume(ref)...)
		} else { // to see whether the broker is provisioned
			u.Publish = append(u.Publish, api+"CONSUMER.INFO."+r.stream(ref.Zone)+"."+ref.Name)
		}
	}
	r.reconciles(&u, seen)
	// To see whether an agent that this worker does not serve has workers.
	u.Publish = append(u.Publish, api+"CONSUMER.INFO."+r.stream(broker.ZoneStart)+".*")
	for _, stream := range broker.Streams(r.s) {
		u.Publish = append(u.Publish, api+"STREAM.INFO."+stream, api+"STREAM.MSG.GET."+stream)
	}
	return u
}

// askers are the inboxes of those who may ask workers about runs. A right to answer whatever reply subject a request names
// would be the right to publish anywhere: a worker can send itself a request whose reply subject is that of a decision.
func (r rights) askers() []string {
	inboxes := []string{r.inbox(r.OperatorName)}
	for _, members := range [][]Member{r.Clients, r.People, r.Approvers} {
		for _, m := range members {
			inboxes = append(inboxes, r.inbox(m.Name))
		}
	}
	return inboxes
}

// reconciles is what a worker that looks for lost runs needs: a lease, and what starts runs of its agents, which it reads
// without the consumers that provisioning made.
func (r rights) reconciles(u *User, own map[broker.ConsumerRef]bool) {
	u.Publish = append(u.Publish, r.on(wire.KindTimer, broker.LeaseToken, ">"))
	for _, a := range r.Broker.Agents {
		start := r.s.Start(a.Name)
		u.Publish = append(u.Publish, r.read(r.stream(broker.ZoneStart), start, start+".*")...)
		u.Publish = append(u.Publish, r.read(r.stream(broker.ZoneOut), r.on(wire.KindOut, "*", wire.NameToken(a.Type), ">"))...)
	}
	for _, ref := range broker.Consumers(r.s, r.Broker) {
		if ref.Zone != broker.ZoneStart && ref.Zone != broker.ZoneOut {
			continue
		}
		name := r.stream(ref.Zone) + "." + ref.Name
		u.Deny = append(u.Deny, api+"CONSUMER.DELETE."+name, api+"CONSUMER.CREATE."+name, api+"CONSUMER.CREATE."+name+".>")
		if !own[ref] && ref.Name != broker.UnroutedConsumer {
			u.Deny = append(u.Deny, api+"CONSUMER.MSG.NEXT."+name)
		}
	}
}

// programs are the users that answer calls: those that the plan names, then one for each type that is left.
func (r rights) programs() ([]User, error) {
	var faults []sdk.Fault
	users := make([]User, len(r.Programs))
	by := map[string]int{} // the program of a type
	for i, p := range r.Programs {
		users[i] = User{Name: p.Name, Role: RoleService, About: "a program that answers " + strings.Join(p.Types, ", "), Subscribe: []string{r.inbox(p.Name)}, Respond: true}
		for _, t := range p.Types {
			by[t] = i
			if !slices.ContainsFunc(r.Broker.Services, func(s broker.ServicePlan) bool { return s.Type == t }) || slices.Contains(forPeople, t) {
				faults = append(faults, sdk.Fault{Path: string(RoleService) + " " + p.Name, Expected: "types of services that agents call", Got: t})
			}
		}
	}
	if faults != nil {
		return nil, &sdk.Error{Code: sdk.CodeConfig, Message: "these services do not exist", Faults: faults}
	}
	for _, s := range r.Broker.Services {
		one := r.service(s)
		i, several := by[s.Type]
		switch {
		case slices.Contains(forPeople, s.Type):
		case several:
			users[i].Publish = append(users[i].Publish, one.Publish...)
			users[i].Subscribe = append(users[i].Subscribe, one.Subscribe[1:]...) // without the inbox
		default:
			users = append(users, one)
		}
	}
	return users, nil
}

func (r rights) service(s broker.ServicePlan) User {
	domain, kind := wire.DomainToken(s.Domain), wire.NameToken(s.Type)
	ref := broker.ServiceConsumer(s.Domain, s.Type)
	u := User{Name: ref.Name, Role: RoleService, About: "the service " + s.Type + " in the domain " + domain, Respond: true}
	u.Publish = append(r.consume(ref),
		r.on(wire.KindIn, domain, kind, ">"),
		r.on(wire.KindDLQ, string(sdk.CodeInvalidEvent), strings.ToLower(r.stream(broker.ZoneOut)), ">"),
		api+"STREAM.MSG.GET."+r.stream(broker.ZoneIn), api+"STREAM.MSG.GET."+r.stream(broker.ZoneDLQ),
		"$KV."+broker.RegistryBucket(r.s)+"."+kind+".>", api+"STREAM.MSG.GET."+r.contracts())
	u.Subscribe = []string{
		r.inbox(u.Name), r.on(wire.KindVoid, domain, kind, ">"), r.s.Contract(s.Type), "$SRV.*", "$SRV.*." + kind, "$SRV.*." + kind + ".*",
	}
	return u
}

// starts are the rights to start runs, to send them messages, to ask about them and to follow them.
func (r rights) starts(u *User, named bool) {
	for _, a := range r.Broker.Agents {
		agent := wire.NameToken(a.Name)
		start, message := r.s.Start(a.Name), r.on(wire.KindCtl, string(wire.ControlMessage), agent, "*", "*")
		u.Publish = append(u.Publish, start+"."+u.Name, message+"."+u.Name, r.s.Get(a.Name))
		if !named {
			u.Publish = append(u.Publish, start, message)
		}
		u.Publish = append(u.Publish, r.read(r.stream(broker.ZoneDone), r.on(wire.KindDone, agent, ">"))...)
		u.Subscribe = append(u.Subscribe, r.on(wire.KindStream, agent, ">"))
	}
}

func (r rights) client(m Member) User {
	u := User{Name: m.Name, Role: RoleClient, About: "a program that starts runs", Subscribe: []string{r.inbox(m.Name)}}
	r.starts(&u, r.Identity)
	return u
}

func (r rights) person(m Member) User {
	u := User{Name: m.Name, Role: RolePerson, About: "a person at a chat front end", Subscribe: []string{r.inbox(m.Name)}}
	r.starts(&u, true)
	out := r.stream(broker.ZoneOut)
	for _, contractType := range []string{sdk.TypeQuestion, sdk.TypeConversationTurn} {
		kind := wire.NameToken(contractType)
		u.Publish = append(u.Publish, r.answers("*", kind, m.Name))
		u.Publish = append(u.Publish, r.read(out, r.on(wire.KindOut, "*", kind, ">"))...)
	}
	u.Deny = r.keepOff(broker.ZoneOut)
	return u
}

// answers are all answers to a type of call that end with a principal: agent, partition, run and call come between.
func (r rights) answers(domain, kind, who string) string {
	return r.on(wire.KindIn, domain, kind, "*", "*", "*", "*", who)
}

func (r rights) approver(m Member) User {
	domains := m.Domains
	if len(domains) == 0 {
		domains = []string{sdk.HumanDomain}
	}
	u := User{
		Name: m.Name, Role: RoleApprover, About: "a person who decides and answers in " + strings.Join(domains, ", "),
		Subscribe: []string{r.inbox(m.Name)},
	}
	in, out, dlq := r.stream(broker.ZoneIn), r.stream(broker.ZoneOut), r.stream(broker.ZoneDLQ)
	for _, d := range domains {
		token := wire.DomainToken(d)
		for _, contractType := range forPeople {
			u.Publish = append(u.Publish, r.answers(token, wire.NameToken(contractType), m.Name))
		}
		u.Publish = append(u.Publish, r.read(out, r.s.Root()+".*."+token+".>", r.on(wire.KindOut, token, ">"))...)
		u.Publish = append(u.Publish, r.read(in, r.on(wire.KindIn, token, ">"))...)
	}
	u.Publish = append(u.Publish, r.read(dlq, r.on(wire.KindDLQ, "*", strings.ToLower(in), ">"))...)
	for _, a := range r.Broker.Agents {
		u.Publish = append(u.Publish, r.s.Get(a.Name))
		u.Subscribe = append(u.Subscribe, r.on(wire.KindStream, wire.NameToken(a.Name), ">"))
	}
	var hooks []broker.ConsumerRef
	for _, h := range r.Broker.Hooks {
		if !slices.ContainsFunc(h.Domains, func(d string) bool { return !slices.Contains(domains, d) }) {
			hooks = append(hooks, broker.HookConsumer(h.Name))
			u.Publish = append(u.Publish, r.consume(broker.HookConsumer(h.Name))...)
		}
	}
	u.Deny = append(r.keepOff(broker.ZoneOut, hooks...), r.keepOff(broker.ZoneIn)...)
	return u
}

func (r rights) operator() User {
	return User{
		Name: r.OperatorName, Role: RoleOperator, About: "who provisions, looks at runs and redrives dead letters",
		Publish:   []string{r.s.Root() + ".>", api + ">", ack + ">", "$KV.>", discovery},
		Deny:      []string{r.on(wire.KindIn, "*", wire.NameToken(sdk.TypePermissionRequest), ">")},
		Subscribe: []string{r.inbox(r.OperatorName), r.s.Root() + ".>", discovery, "$JS.EVENT.ADVISORY.>"},
	}
}

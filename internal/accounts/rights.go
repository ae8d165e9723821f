package accounts

import (
	"slices"
	"strings"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// rights makes the users' rights.
type rights struct {
	s wire.Subjects
	Plan
}

const (
	api = "$JS.API."
	ack = "$JS.ACK."
	// snapshots are where pieces of a stream are confirmed that is backed up, and sent of one that is restored.
	snapshots = "$JS.SNAPSHOT.>"
	// discovery are the requests of the NATS service API (`nats micro ls`).
	discovery = "$SRV.>"
	// replies are the subjects that the server makes for answers to requests from other accounts.
	replies = "_R_.>"
	// userInfo tells a user its account.
	userInfo = "$SYS.REQ.USER.INFO"
	// askedWho is where the server asks who somebody is.
	askedWho = "$SYS.REQ.USER.AUTH"
)

// controls are the control messages that others than operators send, and who may, under their own name. Workers hold cancels
// to the runs that its principal started.
var controls = []struct {
	verb  wire.ControlVerb
	roles []Role
}{
	{wire.ControlCancel, []Role{RoleClient, RolePerson}},
	{wire.ControlCancelCall, []Role{RoleClient, RolePerson}},
	{wire.ControlMessage, []Role{RoleClient, RolePerson}},
}

func (r rights) on(kind wire.Kind, tokens ...string) string {
	return r.s.Root() + "." + string(kind) + "." + strings.Join(tokens, ".")
}

func (r rights) stream(z streams.Zone) string { return streams.Name(r.s, z) }

// streams are those that a zone is divided into.
func (r rights) streams(z streams.Zone) []string {
	var names []string
	for _, part := range r.Broker.Layout().Zones(z) {
		names = append(names, r.stream(part))
	}
	return names
}

// The buckets' streams.
func (r rights) grants() string    { return streams.OfBucket(streams.GrantsBucket(r.s)) }
func (r rights) contracts() string { return streams.OfBucket(streams.RegistryBucket(r.s)) }

func (r rights) inbox(name string) string { return broker.InboxPrefix(r.s, name) + ".>" }

// consume is the right to read the consumers that provisioning made for one, and to settle what they deliver. Whoever may read one of a zone
// that is divided may also ask whether there is one of the zone itself: so it learns that it is.
func (r rights) consume(ref streams.ConsumerRef) []string {
	var allow []string
	parts := r.Broker.Layout().Consumers(ref)
	for _, part := range parts {
		name := r.stream(part.Zone) + "." + part.Name
		allow = append(allow, api+"CONSUMER.INFO."+name, api+"CONSUMER.MSG.NEXT."+name, ack+name+".>")
	}
	if len(parts) > 1 {
		allow = append(allow, api+"CONSUMER.INFO."+r.stream(ref.Zone)+"."+ref.Name)
	}
	return allow
}

// create is the right of workers to look at the messages of a stream on the filters, by consumers that they make and that
// acknowledge nothing. The server holds a consumer to the filter in the subject of the request that made it.
func (r rights) create(stream string, filters ...string) []string {
	allow := []string{api + "CONSUMER.MSG.NEXT." + stream + ".*", api + "CONSUMER.DELETE." + stream + ".*"}
	for _, f := range filters {
		allow = append(allow, api+"CONSUMER.CREATE."+stream+".*."+f)
	}
	return allow
}

// read is the right to have workers read the messages of a zone on a filter, and to hear of new ones. Asked for those of a zone that is divided,
// they say so.
func (r rights) read(u *User, z streams.Zone, filter string, heard ...string) {
	names := r.streams(z)
	if len(names) > 1 {
		names = append(names, r.stream(z))
	}
	for _, stream := range names {
		u.Publish = append(u.Publish, r.s.Read(stream, filter))
	}
	u.Subscribe = append(u.Subscribe, heard...)
}

// direct is the right to read the last message on each subject that matches a filter.
func (r rights) direct(z streams.Zone, filter string) []string {
	var allow []string
	for _, stream := range r.streams(z) {
		allow = append(allow, api+"DIRECT.GET."+stream+"."+filter)
	}
	return allow
}

func (r rights) worker() User {
	u := User{Name: r.WorkerName, Role: RoleWorker, About: "workers that serve the agents"}
	// A right to answer whatever reply subject a request names would be the right to publish anywhere: a worker can send itself
	// a request whose reply subject is that of a decision. Requests from other accounts have one that the server made.
	u.Publish = append(u.Publish, replies, r.inbox(r.OperatorName), userInfo)
	u.Publish = append(u.Publish, r.s.All(wire.KindDone), r.s.All(wire.KindDLQ), r.s.WatchAsk(), "$KV."+streams.GrantsBucket(r.s)+".>")
	u.Subscribe = []string{r.inbox(u.Name), r.s.All(wire.KindWake), r.s.All(wire.KindRead), r.s.Watches(), discovery}
	seen := map[streams.ConsumerRef]bool{}
	for _, a := range r.Broker.Agents {
		agent, kind := wire.NameToken(a.Name), wire.NameToken(a.Type)
		u.Publish = append(u.Publish,
			r.on(wire.KindOut, "*", "*", agent, ">"), r.on(wire.KindVoid, "*", "*", agent, ">"), r.on(wire.KindTimer, agent, ">"),
			r.on(wire.KindStream, agent, ">"), r.on(wire.KindWake, agent, ">"), r.on(wire.KindIn, "*", kind, ">"),
			r.on(wire.KindFire, agent, ">"))
		u.Subscribe = append(u.Subscribe, r.s.Get(a.Name), r.s.GetAs(a.Name, "*"), r.s.Contract(a.Type))
		for _, ref := range r.Broker.Layout().Consumers(streams.AgentConsumers(a.Name)...) {
			seen[ref] = true
			if slices.ContainsFunc(streams.Rebuildable, func(z streams.Zone) bool { return slices.Contains(r.Broker.Layout().Zones(z), ref.Zone) }) {
				u.Publish = append(u.Publish, api+"CONSUMER.RESET."+r.stream(ref.Zone)+"."+ref.Name)
			}
		}
	}
	if r.Journals {
		u.Publish = append(u.Publish, r.s.All(wire.KindRun), r.s.All(wire.KindBlob), r.s.All(wire.KindSpec))
		for _, stream := range r.streams(streams.Run) {
			// Histories that retention removes. A purge's subject does not say of what, so this is any of them.
			u.Publish = append(u.Publish, api+"STREAM.PURGE."+stream, api+"DIRECT.GET."+stream, api+"DIRECT.GET."+stream+".>")
		}
	}
	// Archives of journals: as long as there may be any, also when no more are made. A purge's subject does not say of what, so this is any of
	// them.
	archives := r.stream(streams.Cold)
	u.Publish = append(u.Publish, r.s.All(wire.KindCold), api+"STREAM.INFO."+archives, api+"STREAM.MSG.GET."+archives, api+"STREAM.PURGE."+archives)
	u.Publish = append(u.Publish, api+"DIRECT.GET."+r.grants()+".>", api+"CONSUMER.CREATE."+r.contracts()+".*",
		api+"CONSUMER.MSG.NEXT."+r.contracts()+".*", api+"CONSUMER.DELETE."+r.contracts()+".*")
	for _, ref := range r.Broker.Consumers(r.s) {
		if seen[ref] || ref.Name == streams.UnroutedConsumer {
			u.Publish = append(u.Publish, r.consume(ref)...)
		} else { // to see whether the broker is provisioned
			u.Publish = append(u.Publish, api+"CONSUMER.INFO."+r.stream(ref.Zone)+"."+ref.Name)
		}
	}
	index := r.stream(streams.Index)
	u.Publish = append(u.Publish, r.on(wire.KindIndex, "*", "*"), api+"STREAM.INFO."+index, api+"STREAM.MSG.GET."+index)
	u.Publish = append(u.Publish, r.create(index, r.on(wire.KindIndex, "*", "*"))...)
	r.reconciles(&u, seen)
	r.parks(&u)
	// To see whether an agent that this worker does not serve has workers.
	u.Publish = append(u.Publish, api+"CONSUMER.INFO."+r.stream(streams.Start)+".*")
	for _, stream := range r.Broker.Streams(r.s) {
		u.Publish = append(u.Publish, api+"STREAM.INFO."+stream.Name, api+"STREAM.MSG.GET."+stream.Name)
	}
	return u
}

// parks is what a worker needs whose runs wait for their models: to hear and say which models are away, and to have runs tried again,
// those of other workers' agents too, which wait for the same.
func (r rights) parks(u *User) {
	u.Publish = append(u.Publish, r.on(wire.KindTimer, streams.ParkedToken, ">"),
		r.on(wire.KindCtl, string(wire.ControlUnpark), "*", "*", "*"))
	u.Subscribe = append(u.Subscribe, broker.OutageSubjects(r.s))
}

// reconciles is what a worker that looks for lost runs needs: a lease, and what starts runs of its agents, which it reads
// without the consumers that provisioning made.
func (r rights) reconciles(u *User, own map[streams.ConsumerRef]bool) {
	u.Publish = append(u.Publish, r.on(wire.KindTimer, streams.LeaseToken, ">"))
	// What runs that have ended leave, when all consumers are through with it. A purge's subject does not say of what, so this is any of it.
	for _, stream := range append(r.streams(streams.Out), r.streams(streams.Timer)...) {
		u.Publish = append(u.Publish, api+"STREAM.PURGE."+stream)
	}
	for _, z := range []streams.Zone{streams.Start, streams.In, streams.Out, streams.Done, streams.Timer} {
		for _, stream := range r.streams(z) {
			u.Publish = append(u.Publish, api+"CONSUMER.LIST."+stream)
		}
	}
	for _, a := range r.Broker.Agents {
		start := r.s.Start(a.Name)
		u.Publish = append(u.Publish, r.create(r.stream(streams.Start), start, start+".*")...)
		for _, stream := range r.streams(streams.Out) {
			u.Publish = append(u.Publish, r.create(stream, r.on(wire.KindOut, "*", wire.NameToken(a.Type), ">"))...)
		}
	}
	for _, ref := range r.Broker.Consumers(r.s) {
		if ref.Zone != streams.Start && !slices.Contains(r.Broker.Layout().Zones(streams.Out), ref.Zone) {
			continue
		}
		name := r.stream(ref.Zone) + "." + ref.Name
		u.Deny = append(u.Deny, api+"CONSUMER.DELETE."+name, api+"CONSUMER.CREATE."+name, api+"CONSUMER.CREATE."+name+".>")
		if !own[ref] && ref.Name != streams.UnroutedConsumer {
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
		users[i] = User{Name: p.Name, Role: RoleService, About: "a program that answers " + strings.Join(p.Types, ", "), Publish: []string{replies, userInfo}, Subscribe: []string{r.inbox(p.Name)}}
		for _, t := range p.Types {
			by[t] = i
			if !slices.ContainsFunc(r.Broker.Services, func(s provision.Service) bool { return s.Type == t }) || slices.Contains(forPeople, t) {
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
			users[i].Answers = append(users[i].Answers, one.Answers...)
		default:
			users = append(users, one)
		}
	}
	return users, nil
}

func (r rights) service(s provision.Service) User {
	domain, kind := wire.DomainToken(s.Domain), wire.NameToken(s.Type)
	ref := streams.ServiceConsumer(s.Domain, s.Type)
	u := User{
		Name: ref.Name, Role: RoleService, About: "the service " + s.Type + " in the domain " + domain,
		Answers: []string{r.s.Contract(s.Type), "$SRV.*", "$SRV.*." + kind, "$SRV.*." + kind + ".*"},
	}
	u.Publish = append([]string{replies, userInfo}, r.consume(ref)...)
	u.Publish = append(u.Publish, r.answers(domain, kind)) // of nobody: the end of the subject is a principal's name
	for _, stream := range r.streams(streams.Out) {
		u.Publish = append(u.Publish, r.on(wire.KindDLQ, string(sdk.CodeInvalidEvent), strings.ToLower(stream), "*", domain, kind))
	}
	for _, stream := range r.streams(streams.In) {
		u.Publish = append(u.Publish, api+"STREAM.MSG.GET."+stream)
	}
	u.Publish = append(u.Publish,
		api+"STREAM.MSG.GET."+r.stream(streams.DLQ), "$KV."+streams.RegistryBucket(r.s)+"."+kind+".>", api+"STREAM.MSG.GET."+r.contracts())
	u.Subscribe = append([]string{r.inbox(u.Name), r.on(wire.KindVoid, domain, kind, ">")}, u.Answers...)
	return u
}

// starts are the rights to start runs, to send them messages, to ask about them and to follow them. named leaves out those of
// nobody in particular.
func (r rights) starts(u *User, named bool) {
	u.Publish = append(u.Publish, userInfo)
	for _, a := range r.Broker.Agents {
		agent := wire.NameToken(a.Name)
		done := r.on(wire.KindDone, agent, ">")
		u.Publish = append(u.Publish, r.s.Start(a.Name)+"."+u.Name, r.s.GetAs(a.Name, u.Name))
		u.Publish = append(u.Publish, r.direct(streams.Done, done)...)
		for _, c := range controls {
			if slices.Contains(c.roles, u.Role) {
				u.Publish = append(u.Publish, r.on(wire.KindCtl, string(c.verb), agent, "*", "*", u.Name))
			}
		}
		if !named {
			u.Publish = append(u.Publish, r.s.Start(a.Name), r.on(wire.KindCtl, string(wire.ControlMessage), agent, "*", "*"), r.s.Get(a.Name))
		}
		u.Subscribe = append(u.Subscribe, done)
		r.watches(u, agent)
	}
}

// watches is the right to read the live events of an agent, and to have workers tell them.
func (r rights) watches(u *User, agent string) {
	u.Publish = append(u.Publish, r.on(wire.KindWatch, agent, "*", "*"))
	u.Subscribe = append(u.Subscribe, r.on(wire.KindStream, agent, ">"), r.s.WatchAsk())
}

func (r rights) client(m Member) User {
	u := User{Name: m.Name, Role: RoleClient, About: "a program that starts runs", Subscribe: []string{r.inbox(m.Name)}}
	r.starts(&u, r.Identity)
	return u
}

func (r rights) person(m Member) User {
	u := User{Name: m.Name, Role: RolePerson, About: "a person at a chat front end", Subscribe: []string{r.inbox(m.Name)}}
	r.starts(&u, true)
	for _, a := range r.Broker.Agents { // whoever started a run, it may ask this person
		u.Publish = append(u.Publish, r.s.Get(a.Name))
	}
	for _, contractType := range []string{sdk.TypeQuestion, sdk.TypeConversationTurn} {
		u.Publish = append(u.Publish, r.answers("*", wire.NameToken(contractType))+"."+m.Name)
	}
	return u
}

// answers are all answers to a type of call, without a principal: agent, partition, run and call come last.
func (r rights) answers(domain, kind string) string {
	return r.on(wire.KindIn, domain, kind, "*", "*", "*", "*")
}

func (r rights) approver(m Member) User {
	domains := m.Domains
	if len(domains) == 0 {
		domains = []string{sdk.HumanDomain}
	}
	u := User{
		Name: m.Name, Role: RoleApprover, About: "a person who decides and answers in " + strings.Join(domains, ", "),
		Publish: []string{userInfo}, Subscribe: []string{r.inbox(m.Name)},
	}
	for _, d := range domains {
		token := wire.DomainToken(d)
		for _, contractType := range forPeople {
			u.Publish = append(u.Publish, r.answers(token, wire.NameToken(contractType))+"."+m.Name)
		}
		call, void, answer := r.on(wire.KindOut, token, ">"), r.on(wire.KindVoid, token, ">"), r.on(wire.KindIn, token, ">")
		r.read(&u, streams.Out, r.s.Root()+".*."+token+".>", call, void)
		r.read(&u, streams.In, answer, answer)
		u.Publish = append(u.Publish, r.direct(streams.Out, call)...)
	}
	for _, stream := range r.streams(streams.In) {
		letter := r.on(wire.KindDLQ, "*", strings.ToLower(stream), ">")
		r.read(&u, streams.DLQ, letter, letter)
	}
	for _, a := range r.Broker.Agents {
		u.Publish = append(u.Publish, r.s.Get(a.Name), r.s.GetAs(a.Name, u.Name))
		r.watches(&u, wire.NameToken(a.Name))
	}
	for _, h := range r.Broker.Webhooks {
		if !slices.ContainsFunc(h.Domains, func(d string) bool { return !slices.Contains(domains, d) }) {
			u.Publish = append(u.Publish, r.consume(streams.WebhookConsumer(h.Name))...)
		}
	}
	return u
}

func (r rights) operator() User {
	return User{
		Name: r.OperatorName, Role: RoleOperator, About: "who provisions, looks at runs and redrives dead letters",
		// Its own inbox, for a console of an operator that has the index of runs answers commands of operators.
		Publish: []string{r.s.Root() + ".>", api + ">", ack + ">", snapshots, "$KV.>", r.inbox(r.OperatorName), discovery, userInfo},
		Deny: []string{
			r.on(wire.KindIn, "*", wire.NameToken(sdk.TypePermissionRequest), ">"), r.on(wire.KindIn, "*", wire.NameToken(sdk.TypePlanReview), ">"),
		},
		Subscribe: []string{r.inbox(r.OperatorName), r.s.Root() + ".>", discovery, "$JS.EVENT.ADVISORY.>"},
	}
}

// callout is asked by the server, which looks whether it may publish the answer.
func (r rights) callout() User {
	return User{
		Name: r.CalloutName, Role: RoleCallout, About: "who says which person a proof of a login is of", Asked: true,
		Publish:   []string{userInfo},
		Subscribe: []string{r.inbox(r.CalloutName), askedWho},
	}
}

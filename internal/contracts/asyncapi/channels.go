package asyncapi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"agentd/internal/contracts"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Placeholders of tokens that only a run or a call knows.
const (
	paramAgent     = "{agent}"
	paramPartition = "{p}"
	paramRun       = "{run}"
	paramCall      = "{call}"
	paramInit      = "{init}"
)

var parameterTexts = map[string]string{
	"agent":    "The token of the agent that asks: its name with dots as underscores.",
	"p":        "The partition of the run: the first byte of SHA-256 of its subject as three decimal digits.",
	"run":      "The token of the run: 26 characters of base32 over SHA-256 of its subject.",
	"call":     "The id of the call's event.",
	"init":     "The token of the init event: 26 characters of base32 over SHA-256 of its source and id.",
	"reason":   "The code of the error.",
	"stream":   "The stream that the message came from, in lower case.",
	"sequence": "Its sequence there.",
}

var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

func parametersOf(address string) []string {
	var names []string
	for _, m := range placeholder.FindAllStringSubmatch(address, -1) {
		names = append(names, m[1])
	}
	return names
}

var anyRun = wire.RunKey{Partition: paramPartition, Token: paramRun}

const principal = " Where the broker enforces principals, a last token is the user's name."

// stream is the name of a stream, as agentd provision makes it.
func (b *builder) stream(zone string) string { return strings.ToUpper(b.Subjects.Root()) + "_" + zone }

// agent adds what clients and an agent have with each other.
func (b *builder) agent(spec sdk.AgentSpec) {
	token, subjects := wire.NameToken(spec.Name), b.Subjects
	address := func(s string) *string { return &s }
	accepted, answers := b.accepted(spec.Contract, spec.Version), b.answers(spec.Contract, []string{spec.Version})
	b.operate("start."+token, actionReceive, ViewClient,
		operation{
			Title:       "Start a run of " + spec.Name,
			Description: "The pair of source and id is the identity of the init event: the same pair again changes nothing.",
		},
		channel{
			Address: address(subjects.Start(spec.Name)), Title: "Init events of " + spec.Name, Messages: accepted,
			Description: spec.Description + principal, Stream: b.stream("START"),
		})
	b.operate("done."+token, actionSend, ViewClient,
		operation{Title: "The end of a run of " + spec.Name, Description: "Exactly one event for every run."},
		channel{
			Address: address(subjects.Done(spec.Name, anyRun, paramInit)), Title: "Terminal events of " + spec.Name,
			Messages: answers, Stream: b.stream("DONE"),
		})
	b.operate("cancel."+token, actionReceive, ViewClient,
		operation{Title: "Cancel a run of " + spec.Name},
		channel{
			Address: address(subjects.Control(wire.ControlCancel, spec.Name, anyRun)), Title: "Cancellation of runs of " + spec.Name,
			Messages: b.message("cancel", cancelMessage()), Description: strings.TrimSpace(principal), Stream: b.stream("IN"),
		})
	b.operate("cancelCall."+token, actionReceive, ViewClient,
		operation{Title: "Cancel one call of a run of " + spec.Name},
		channel{
			Address: address(subjects.Control(wire.ControlCancelCall, spec.Name, anyRun)), Title: "Cancellation of calls of " + spec.Name,
			Messages: b.message("cancelCall", cancelCallMessage()), Description: strings.TrimSpace(principal), Stream: b.stream("IN"),
		})
	for _, c := range operatorControls {
		b.operate(string(c.verb)+"."+token, actionReceive, ViewAgentd,
			operation{Title: fmt.Sprintf(c.does, spec.Name), Description: c.who},
			channel{
				Address: address(subjects.Control(c.verb, spec.Name, anyRun)), Title: c.title + " of " + spec.Name,
				Messages: b.message(string(c.verb), c.message), Description: strings.TrimSpace(principal), Stream: b.stream("IN"),
			})
	}
	b.operate("live."+token, actionSend, ViewClient,
		operation{Title: "Watch a run of " + spec.Name},
		channel{
			Address: address(subjects.Live(spec.Name, anyRun)), Title: "Live events of " + spec.Name,
			Description: "Lossy, and stored nowhere: who misses some asks about the run.", Messages: b.message("live", liveMessage()),
		})
	b.operate("watch."+token, actionReceive, ViewClient,
		operation{Title: "Have the live events of a run of " + spec.Name + " told"},
		channel{
			Address: address(subjects.Watch(spec.Name, anyRun)), Title: "Announcements of who reads live events of " + spec.Name,
			Description: "It holds for 15 s: announce it again each 5 s, and when a worker asks on " + subjects.WatchAsk() +
				". all.all in the place of the run is all runs.",
			Messages: b.message("watch", watchMessage()),
		})
	b.query(spec, token)
}

// query adds the request about a run, which is NATS request and reply.
func (b *builder) query(spec sdk.AgentSpec, token string) {
	const inbox = "inbox"
	status := b.message("status", statusMessage())
	if b.View != ViewService {
		b.addChannel(inbox, channel{Title: "The inbox of whoever asked", Messages: status})
	}
	get := b.Subjects.Get(spec.Name)
	b.operate("get."+token, actionReceive, ViewClient,
		operation{
			Title: "Ask about a run of " + spec.Name,
			Reply: &reply{
				Channel: ref{"#/channels/" + inbox}, Messages: []ref{{"#/channels/" + inbox + "/messages/status"}},
			},
			Bindings: natsBinding(map[string]any{"queue": "q"}),
		},
		channel{
			Address: &get, Title: "Queries about runs of " + spec.Name, Messages: b.message("query", queryMessage()),
			Description: "A NATS request: the answer comes to the inbox that the request names.",
		})
}

// service adds what services of a contract and agentd have with each other. An agent's own contract has no services:
// agentd answers those calls.
func (b *builder) service(c sdk.Contract) {
	if slices.ContainsFunc(b.Agents, func(a sdk.AgentSpec) bool { return wire.SameURI(a.Contract.URI, c.URI) }) {
		return
	}
	versions := contracts.Versions(c)
	var calls []map[string]ref
	for _, v := range versions {
		calls = append(calls, b.accepted(c, v))
	}
	accepted, answers := merge(calls...), b.answers(c, versions)
	for _, domain := range b.lanes(c) {
		b.lane(c, domain, accepted, answers)
	}
}

// lanes are the domains in which a contract is called.
func (b *builder) lanes(c sdk.Contract) []string {
	var lanes []string
	for _, l := range b.Lanes {
		if l.Type == c.Type {
			lanes = append(lanes, l.Domain)
		}
	}
	if len(lanes) == 0 {
		return []string{c.Domain}
	}
	slices.Sort(lanes)
	return slices.Compact(lanes)
}

func (b *builder) lane(c sdk.Contract, domain string, accepted, answers map[string]ref) {
	a := wire.CallAddress{
		Domain: wire.DomainToken(domain), Type: wire.NameToken(c.Type), Agent: paramAgent, Run: anyRun, Call: paramCall,
	}
	id := a.Domain + "." + a.Type
	where := c.Type
	if domain != "" {
		where += " in the domain " + domain
	}
	call, answer, void := b.Subjects.Call(a), b.Subjects.Reply(a), b.Subjects.Void(a)
	consumer := "svc_" + a.Domain + "_" + a.Type
	b.operate("call."+id, actionSend, ViewService,
		operation{
			Title:       "Call " + where,
			Description: "The answer goes to the subject of the call with its second token out replaced by in; the header agentd-reply repeats it.",
			Consumer:    consumer,
		},
		channel{Address: &call, Title: "Calls of " + where, Description: c.Description, Messages: accepted, Stream: b.stream("OUT")})
	b.operate("answer."+id, actionReceive, ViewService,
		operation{
			Title:       "Answer a call of " + where,
			Description: "The first answer counts. It is held to the version that was called.",
		},
		channel{
			Address: &answer, Title: "Answers to calls of " + where, Description: strings.TrimSpace(principal),
			Messages: answers, Stream: b.stream("IN"),
		})
	b.operate("void."+id, actionSend, ViewService,
		operation{Title: "Nobody waits for a call of " + where + " any more", Consumer: consumer},
		channel{
			Address: &void, Title: "Calls of " + where + " that were cancelled or timed out",
			Messages: b.void(c), Stream: b.stream("OUT"),
		})
}

func (b *builder) deadLetters() {
	address := b.Subjects.Root() + "." + string(wire.KindDLQ) + ".{reason}.{stream}.{sequence}"
	b.operate("deadLetters", actionSend, ViewAgentd,
		operation{Title: "Put aside what cannot be handled"},
		channel{
			Address: &address, Title: "Dead letters", Description: "For operators. Body and headers are those of the message.",
			Messages: b.message("deadLetter", deadLetterMessage()), Stream: b.stream("DLQ"),
		})
}

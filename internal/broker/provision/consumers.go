package provision

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

type consumerPlan struct {
	streams.ConsumerRef
	filters []string
	ackWait time.Duration
	reader  reader
	// metadata says of how many consumers of the name this is one; nil is one.
	metadata map[string]string
}

// reader is who reads a consumer.
type reader int

const (
	workers reader = iota
	// aService has a consumer whose name does not say where the domain ends and the type begins.
	aService
	aHook
)

// Consumers are the durable consumers of a plan.
func (p Plan) Consumers(s wire.Subjects) []streams.ConsumerRef {
	var refs []streams.ConsumerRef
	for _, c := range p.consumers(s) {
		refs = append(refs, c.ConsumerRef)
	}
	return refs
}

func (p Plan) consumers(s wire.Subjects) []consumerPlan {
	root := s.Root()
	var plans []consumerPlan
	add := func(ref streams.ConsumerRef, of reader, filters ...string) {
		wait := streams.CallWait
		if of == workers {
			wait = streams.AckWait
		}
		layout := p.Layout()
		for _, part := range layout.Consumers(ref) {
			plan := consumerPlan{ConsumerRef: part, filters: filters, ackWait: cmp.Or(p.AckWait, wait), reader: of}
			if part != ref {
				plan.metadata = layout.Metadata()
			}
			plans = append(plans, plan)
		}
	}
	add(streams.ConsumerRef{Zone: streams.Start, Name: streams.UnroutedConsumer}, workers, s.All(wire.KindStart))
	for _, a := range p.Agents {
		agent, kind := wire.NameToken(a.Name), wire.NameToken(a.Type)
		refs := streams.AgentConsumers(a.Name)
		add(refs[0], workers, s.Start(a.Name), s.Start(a.Name)+".*")
		add(refs[1], workers, root+".in.*.*."+agent+".>", root+".ctl.*."+agent+".>")
		add(refs[2], workers, root+".fire."+agent+".>")
		add(refs[3], workers, root+".out.*."+kind+".>", root+".void.*."+kind+".>")
	}
	for _, service := range p.Services {
		tail := wire.DomainToken(service.Domain) + "." + wire.NameToken(service.Type) + ".>"
		add(streams.ServiceConsumer(service.Domain, service.Type), aService, root+".out."+tail, root+".void."+tail)
	}
	for _, h := range p.Webhooks {
		var filters []string
		for _, domain := range h.Domains {
			token := domain
			if domain != "*" {
				token = wire.DomainToken(domain)
			}
			filters = append(filters, root+".out."+token+".>")
		}
		add(streams.WebhookConsumer(h.Name), aHook, filters...)
	}
	return plans
}

// check reports every name that makes no subject, and every two consumers that would be one.
func (p Plan) check(s wire.Subjects) error {
	var faults []sdk.Fault
	fault := func(path, expected, got string) {
		faults = append(faults, sdk.Fault{Path: path, Expected: expected, Got: got})
	}
	name := func(path, name string, err error) {
		if err != nil {
			fault(path, "a name", strconv.Quote(name))
		}
	}
	for i, a := range p.Agents {
		name(fmt.Sprintf("$.agents[%d].name", i), a.Name, wire.CheckName(a.Name))
		name(fmt.Sprintf("$.agents[%d].type", i), a.Type, wire.CheckName(a.Type))
	}
	for i, service := range p.Services {
		name(fmt.Sprintf("$.services[%d].domain", i), service.Domain, wire.CheckDomain(service.Domain))
		name(fmt.Sprintf("$.services[%d].type", i), service.Type, wire.CheckName(service.Type))
	}
	if !slices.Contains([]streams.PersistMode{"", streams.PersistDefault, streams.PersistAsync}, p.PersistMode) {
		fault("nats.persist_mode", "default or async", strconv.Quote(string(p.PersistMode)))
	}
	if p.Unreconciled && p.PersistMode == streams.PersistAsync {
		fault("nats.persist_mode", "default, because reconciliation is turned off, which brings back what the server forgets", strconv.Quote(string(p.PersistMode)))
	}
	filters := map[streams.ConsumerRef]string{}
	for _, want := range p.consumers(s) {
		mine := strings.Join(want.filters, " ")
		if other, ok := filters[want.ConsumerRef]; ok && other != mine {
			fault("consumer "+want.Name, "one owner; rename an agent, a domain or a type", other+" and "+mine)
		}
		filters[want.ConsumerRef] = mine
	}
	if faults == nil {
		return nil
	}
	return &sdk.Error{Code: sdk.CodeConfig, Message: "agents and services cannot be provisioned", Faults: faults}
}

func (p consumerPlan) config() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: p.Name, FilterSubjects: p.filters, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: p.ackWait, MaxDeliver: -1, MaxAckPending: -1, DeliverPolicy: jetstream.DeliverAllPolicy, Metadata: p.metadata,
	}
}

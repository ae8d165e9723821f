package asyncapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Version is that of the AsyncAPI specification.
const Version = "3.0.0"

// View is the party whose application a document describes.
type View string

// The views.
const (
	ViewAgentd  View = "agentd"
	ViewClient  View = "client"
	ViewService View = "service"
)

// Views lists them, the default first.
func Views() []View { return []View{ViewAgentd, ViewClient, ViewService} }

// Deployment is what a document is made from.
type Deployment struct {
	// Title and Version are those of the document.
	Title, Version string
	View           View
	Subjects       wire.Subjects
	// Servers are addresses without credentials.
	Servers []Server
	Agents  []sdk.AgentSpec
	// Contracts are those of the agents too.
	Contracts []sdk.Contract
	// Lanes are the domains in which types are called. A contract of none is called in its own domain.
	Lanes []Lane
	// Partitions is into how many streams calls and answers are divided; 0 is 1.
	Partitions int
}

// Lane is a domain in which a contract's type is called; the empty domain is the local lane.
type Lane struct{ Domain, Type string }

// Server is a NATS server that clients can reach.
type Server struct {
	Name        string
	Host        string
	Protocol    string
	Description string
}

// document is the root object of AsyncAPI, in the order in which people read it.
type document struct {
	AsyncAPI           string               `json:"asyncapi"`
	Info               info                 `json:"info"`
	DefaultContentType string               `json:"defaultContentType"`
	Servers            map[string]server    `json:"servers,omitempty"`
	Channels           map[string]channel   `json:"channels"`
	Operations         map[string]operation `json:"operations"`
	Components         components           `json:"components"`
}

type info struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

type server struct {
	Host        string `json:"host"`
	Protocol    string `json:"protocol"`
	Description string `json:"description,omitempty"`
}

type ref struct {
	Ref string `json:"$ref"`
}

type channel struct {
	// Address is null where the address is only known at run time.
	Address     *string        `json:"address"`
	Title       string         `json:"title"`
	Description string         `json:"description,omitempty"`
	Messages    map[string]ref `json:"messages"`
	Parameters  map[string]ref `json:"parameters,omitempty"`
	// Stream is the JetStream stream that keeps the messages; empty is core NATS.
	Stream string `json:"x-agentd-stream,omitempty"`
	// Partitions is how many of it there are, where there are several: the i-th is called Stream, "_" and i, from 0 on.
	Partitions int `json:"x-agentd-partitions,omitempty"`
}

type operation struct {
	Action      action         `json:"action"`
	Channel     ref            `json:"channel"`
	Title       string         `json:"title"`
	Description string         `json:"description,omitempty"`
	Messages    []ref          `json:"messages"`
	Reply       *reply         `json:"reply,omitempty"`
	Bindings    map[string]any `json:"bindings"`
	// Consumer is the durable pull consumer that a service binds to, on each of the channel's streams.
	Consumer string `json:"x-agentd-consumer,omitempty"`
}

type action string

const (
	actionSend    action = "send"
	actionReceive action = "receive"
)

type reply struct {
	Address  *replyAddress `json:"address,omitempty"`
	Channel  ref           `json:"channel"`
	Messages []ref         `json:"messages"`
}

type replyAddress struct {
	Location    string `json:"location"`
	Description string `json:"description"`
}

type message struct {
	Name          string       `json:"name"`
	Title         string       `json:"title"`
	Summary       string       `json:"summary,omitempty"`
	ContentType   string       `json:"contentType"`
	Headers       any          `json:"headers,omitempty"`
	Payload       any          `json:"payload"`
	CorrelationID *correlation `json:"correlationId,omitempty"`
}

type correlation struct {
	Description string `json:"description"`
	Location    string `json:"location"`
}

type components struct {
	Schemas    map[string]any       `json:"schemas"`
	Messages   map[string]message   `json:"messages"`
	Parameters map[string]parameter `json:"parameters"`
}

type parameter struct {
	Description string `json:"description"`
}

// multiFormat is a schema with the name of its format.
type multiFormat struct {
	SchemaFormat string `json:"schemaFormat"`
	Schema       any    `json:"schema"`
}

// Document returns the document as JSON. Equal deployments give equal bytes. The error is CodeConfig with every schema
// that cannot be used.
func Document(d Deployment) (json.RawMessage, error) {
	b := &builder{
		Deployment: d,
		doc: document{
			AsyncAPI: Version, DefaultContentType: wire.ContentTypeStructured,
			Info:     info{d.Title, d.Version, description(d.View)},
			Servers:  map[string]server{},
			Channels: map[string]channel{}, Operations: map[string]operation{},
			Components: components{map[string]any{}, map[string]message{}, map[string]parameter{}},
		},
	}
	for _, s := range d.Servers {
		b.doc.Servers[s.Name] = server{s.Host, s.Protocol, s.Description}
	}
	for _, a := range d.Agents {
		b.agent(a)
	}
	for _, c := range d.Contracts {
		b.service(c)
	}
	if d.View == ViewAgentd {
		b.deadLetters()
	}
	if len(b.faults) > 0 {
		return nil, &sdk.Error{Code: sdk.CodeConfig, Message: "contracts cannot be used", Faults: b.faults}
	}
	text, err := json.MarshalIndent(b.doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write AsyncAPI document: %w", err)
	}
	return text, nil
}

func description(v View) string {
	const wire = " Every message but queries is a CloudEvent in structured mode. Tokens of subjects, ids, " +
		"replies and streams are specified in agentd's docs/wire.md."
	switch v {
	case ViewClient:
		return "An application that starts runs of agents and follows them." + wire
	case ViewService:
		return "Services that answer the calls of agents." + wire
	default:
		return "agentd's workers: what they receive from clients and services, and what they send." + wire
	}
}

// builder collects a document.
type builder struct {
	Deployment
	doc    document
	faults []sdk.Fault
}

// party is who is at the other end of an operation.
type party = View

// operate adds an operation on a channel. does is what agentd does there; other is who does the opposite.
func (b *builder) operate(id string, does action, other party, o operation, c channel) {
	if b.View != ViewAgentd && b.View != other {
		return
	}
	o.Action = does
	if b.View != ViewAgentd {
		o.Action = map[action]action{actionSend: actionReceive, actionReceive: actionSend}[does]
	}
	b.addChannel(id, c)
	o.Channel = ref{"#/channels/" + id}
	for _, name := range slices.Sorted(maps.Keys(c.Messages)) {
		o.Messages = append(o.Messages, ref{"#/channels/" + id + "/messages/" + name})
	}
	if o.Bindings == nil {
		o.Bindings = natsBinding(nil)
	}
	b.doc.Operations[id] = o
}

// natsBinding is the operation binding of NATS with further members.
func natsBinding(more map[string]any) map[string]any {
	binding := map[string]any{"bindingVersion": "0.1.0"}
	for name, value := range more {
		binding[name] = value
	}
	return map[string]any{"nats": binding}
}

// addChannel adds a channel with the parameters of its address.
func (b *builder) addChannel(id string, c channel) {
	if b.Partitions > 1 && (c.Stream == b.stream("IN") || c.Stream == b.stream("OUT")) {
		c.Partitions = b.Partitions
	}
	if c.Address != nil {
		for _, name := range parametersOf(*c.Address) {
			if c.Parameters == nil {
				c.Parameters = map[string]ref{}
			}
			c.Parameters[name] = ref{"#/components/parameters/" + name}
			b.doc.Components.Parameters[name] = parameter{parameterTexts[name]}
		}
	}
	b.doc.Channels[id] = c
}

// message adds a message and returns the reference to it by name.
func (b *builder) message(name string, m message) map[string]ref {
	b.doc.Components.Messages[name] = m
	return map[string]ref{name: {"#/components/messages/" + name}}
}

func merge(maps ...map[string]ref) map[string]ref {
	all := map[string]ref{}
	for _, m := range maps {
		for name, r := range m {
			all[name] = r
		}
	}
	return all
}

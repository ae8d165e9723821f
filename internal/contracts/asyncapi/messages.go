package asyncapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"agentd/internal/contracts"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/wire"
)

type object = map[string]any

// schemaRef is a reference to a schema that has a format: the format stands beside the schema itself.
func schemaRef(name string) object { return object{"$ref": "#/components/schemas/" + name + "/schema"} }

// embed adds a schema of a contract and returns its name and format. What does not compile is noted.
func (b *builder) embed(name string, raw json.RawMessage) (format string) {
	format, schema, err := schema.Embed(raw, "/components/schemas/"+name+"/schema")
	if err != nil {
		for _, f := range sdk.AsError(err).Faults {
			f.Path = name + ": " + f.Path
			b.faults = append(b.faults, f)
		}
		return format
	}
	b.doc.Components.Schemas[name] = multiFormat{format, schema}
	return format
}

// event is a CloudEvent of one type with one form of data, in the format of the data's schema: within a schema, tools
// follow references to others of its own format only.
func (b *builder) event(format, data, eventType, dataSchema string) multiFormat {
	envelope := "cloudEvent." + format[strings.LastIndexByte(format, '=')+1:]
	b.doc.Components.Schemas[envelope] = multiFormat{format, envelopeSchema()}
	return multiFormat{format, object{
		"allOf": []any{schemaRef(envelope)},
		"type":  "object",
		"properties": object{
			"type":       object{"const": eventType},
			"dataschema": object{"const": dataSchema},
			"data":       schemaRef(data),
		},
		"required": []string{"type", "dataschema", "data"},
	}}
}

// accepted is the message of calls, and of init events where the contract is an agent's.
func (b *builder) accepted(c sdk.Contract, version string) map[string]ref {
	data := "accepts." + c.Type + "." + version
	format := b.embed(data, c.Versions[version].Accepts)
	if format == "" {
		return nil
	}
	return b.message("call."+c.Type+"."+version, message{
		Name: c.Type, Title: c.Type + " " + version, Summary: c.Description, ContentType: wire.ContentTypeStructured,
		Headers: headers(object{"agentd-reply": text("The subject that the answer goes to. Init events have none.")}),
		Payload: b.event(format, data, c.Type, sdk.SchemaRef(c.URI, version)),
		CorrelationID: &correlation{
			"An answer has it as parentid.", "$message.payload#/id",
		},
	})
}

// answers are the messages that versions of a contract emit, and the system error.
func (b *builder) answers(c sdk.Contract, versions []string) map[string]ref {
	answersTo := &correlation{"The id of the event that this one answers.", "$message.payload#/parentid"}
	all := []map[string]ref{}
	for _, version := range versions {
		for _, emitted := range slices.Sorted(maps.Keys(c.Versions[version].Emits)) {
			data := "emits." + c.Type + "." + version + "." + emitted
			format := b.embed(data, c.Versions[version].Emits[emitted])
			if format == "" {
				continue
			}
			all = append(all, b.message("answer."+c.Type+"."+version+"."+emitted, message{
				Name: emitted, Title: emitted + " " + version, ContentType: wire.ContentTypeStructured, Headers: headers(nil),
				Payload:       b.event(format, data, emitted, sdk.SchemaRef(c.URI, version)),
				CorrelationID: answersTo,
			}))
		}
	}
	const problem = "systemError"
	format := b.embed(problem, json.RawMessage(problemSchema))
	all = append(all, b.message("error."+c.Type, message{
		Name: wire.ErrorType(c.Type), Title: "Error of " + c.Type, ContentType: wire.ContentTypeStructured, Headers: headers(nil),
		Payload:       b.event(format, problem, wire.ErrorType(c.Type), sdk.SchemaRef(c.URI, contracts.Wildcard)),
		CorrelationID: answersTo,
	}))
	return merge(all...)
}

func (b *builder) void(c sdk.Contract) map[string]ref {
	return b.message("void."+c.Type, message{
		Name: c.Type, Title: "End of a call of " + c.Type, ContentType: wire.ContentTypeStructured, Headers: headers(nil),
		Payload: cloudEvent(object{"type": object{"const": c.Type}, "data": object{"type": "object", "maxProperties": 0}}),
		CorrelationID: &correlation{
			"The id of the call's event.", "$message.payload#/parentid",
		},
	})
}

// cloudEvent is the envelope with some members, for data of no contract.
func cloudEvent(members object) object {
	return object{"allOf": []any{envelopeSchema()}, "properties": members}
}

func cancelMessage() message {
	return message{
		Name: "cancel", Title: "Cancellation", ContentType: wire.ContentTypeStructured, Headers: headers(nil),
		Summary: "The run ends with the error cancelled. Its type may be anything.",
		Payload: cloudEvent(object{"data": object{
			"type": []string{"object", "null"}, "properties": object{"reason": object{"type": "string"}},
		}}),
	}
}

func cancelCallMessage() message {
	return message{
		Name: "cancelCall", Title: "Cancellation of a call", ContentType: wire.ContentTypeStructured, Headers: headers(nil),
		Summary: "The call is given up, and the run goes on. Its type may be anything.",
		Payload: cloudEvent(object{"data": object{
			"type": "object", "required": []string{"call"},
			"properties": object{"call": object{"type": "string"}, "reason": object{"type": "string"}},
		}}),
	}
}

// operatorControls are the control messages that are operators'. does has a place for the agent's name.
var operatorControls = []struct {
	verb             wire.ControlVerb
	does, title, who string
	message          message
}{
	{
		wire.ControlPause, "Have a run of %s do nothing more", "Pauses of runs", "For operators.",
		controlMessage("pause", "Pause", "The run makes no further call until it is resumed.",
			object{"properties": object{"reason": object{"type": "string"}}}),
	},
	{
		wire.ControlResume, "Let a run of %s go on that was paused", "Ends of pauses of runs", "For operators.",
		controlMessage("resume", "Resumption", "The pause is taken back.", object{}),
	},
	{
		wire.ControlUnpark, "Have a run of %s tried again that waits for its model", "Tries of runs", "For operators, and workers.",
		controlMessage("unpark", "Try", "The run is tried again at once; with key, only if it waits for what that names.",
			object{"properties": object{"key": object{"type": "string"}}}),
	},
	{
		wire.ControlTag, "Change by which tags a run of %s is found", "Tags of runs", "For operators.",
		controlMessage("tag", "Tags", "The run gets these tags; with null, it loses one.",
			object{"properties": object{"tags": object{"type": "object", "additionalProperties": object{"type": []string{"string", "null"}}}}}),
	},
	{
		wire.ControlRetry, "Retry a run of %s that ended with error, quota or deadline", "Retries of runs", "For operators.",
		controlMessage("retry", "Retry",
			"The run goes on from where it ended. Its source and id are its identity: the same pair again changes nothing.", object{}),
	},
	{
		wire.ControlUndo, "Undo calls of a run of %s that has ended", "Undoing of calls of runs", "For operators.",
		controlMessage("undo", "Undo",
			"The calls are made that undo those named, or as many as can be undone, the newest first. Its source and id are its identity, as a retry's.",
			object{"properties": object{"calls": object{"type": "array", "items": object{"type": "string"}, "maxItems": wire.MaxUndo}}}),
	},
}

// controlMessage is a control message with data of a schema; none is the same as an empty object.
func controlMessage(name, title, summary string, data object) message {
	data["type"] = []string{"object", "null"}
	return message{
		Name: name, Title: title, ContentType: wire.ContentTypeStructured, Headers: headers(nil), Summary: summary,
		Payload: cloudEvent(object{"data": data}),
	}
}

func liveMessage() message {
	return message{
		Name: "live", Title: "Live event", ContentType: wire.ContentTypeStructured,
		Summary: "What a run does, for people who watch. rev and i number milestones; ephemeral events carry the revision that they come after.",
		Payload: liveSchema(),
	}
}

func watchMessage() message {
	return message{Name: "watch", Title: "Announcement that live events are read", Summary: "It has no body.", Payload: object{"maxLength": 0}}
}

func liveSchema() object {
	return object{
		"type": "object",
		"properties": object{
			"specversion": object{"const": wire.SpecVersion},
			"id":          text("The same whenever a milestone is told."), "source": object{"type": "string"},
			"type":    object{"type": "string", "pattern": "^agentd\\.live\\.", "description": "Readers ignore types that they do not know."},
			"subject": text("The run's subject."), "agent": object{"type": "string"},
			"time":            object{"type": "string", "format": "date-time"},
			"datacontenttype": object{"const": wire.ContentTypeJSON},
			"turn":            object{"type": "integer"},
			"rev":             object{"type": "integer"}, "i": object{"type": "integer"}, "count": object{"type": "integer"},
			"sequence":  text("Orders the events of a run as texts do."),
			"ephemeral": object{"type": "boolean"},
			"data":      object{},
		},
		"required": []string{"specversion", "id", "source", "type", "subject", "time", "agent", "turn", "rev", "i", "sequence"},
	}
}

func queryMessage() message {
	return message{
		Name: "query", Title: "Query about a run", ContentType: wire.ContentTypeJSON,
		Payload: object{
			"type": "object",
			"properties": object{
				"run": text("The run's subject."),
				"after": object{
					"type": "object", "description": "The last milestone seen; without it all are wanted.",
					"properties": object{"rev": object{"type": "integer"}, "i": object{"type": "integer"}},
				},
			},
			"required": []string{"run"},
		},
	}
}

func statusMessage() message {
	integer := object{"type": "integer"}
	return message{
		Name: "status", Title: "State of a run", ContentType: wire.ContentTypeJSON,
		Headers: headersOf(object{
			"Nats-Service-Error-Code": text("The code of an error; the body is empty then."),
			"Nats-Service-Error":      text("What is wrong."),
		}),
		Payload: object{
			"type": "object",
			"properties": object{
				"run": object{"type": "string"}, "agent": object{"type": "string"},
				"status": object{"enum": []string{"running", "waiting", "done"}}, "reason": object{"type": "string"},
				"rev": integer, "interactions": integer,
				"usage":      object{"type": "object", "properties": object{"prompt": integer, "completion": integer}},
				"waiting":    object{"type": "array", "items": object{"type": "object"}},
				"milestones": object{"type": "array", "items": liveSchema()}, "more": object{"type": "boolean"},
				"terminal": object{"type": "object"},
			},
			"required": []string{"run", "agent", "status", "rev"},
		},
	}
}

func deadLetterMessage() message {
	return message{
		Name: "deadLetter", Title: "Dead letter", ContentType: "application/octet-stream",
		Headers: headersOf(object{
			"agentd-reason": text("The code of the error."), "agentd-detail": text("What is wrong."),
			"agentd-subject": text("Where the message came from."), "agentd-omitted": text("Set when the body is left out."),
		}),
		Payload: object{"description": "The body as it came, which need not be an event."},
	}
}

func text(description string) object { return object{"type": "string", "description": description} }

// headers are those of a CloudEvent in structured mode, and more.
func headers(more object) object {
	all := object{"Content-Type": object{"type": "string", "const": wire.ContentTypeStructured}}
	for name, schema := range more {
		all[name] = schema
	}
	return headersOf(all)
}

func headersOf(properties object) object { return object{"type": "object", "properties": properties} }

// problemSchema is the data of a system error.
const problemSchema = `{
  "type": "object",
  "properties": {
    "errorName": {"type": "string", "description": "Repeats the code."},
    "errorMessage": {"type": "string"},
    "errorStack": {"type": ["string", "null"]},
    "code": {"type": "string"},
    "retryable": {"type": "boolean", "description": "The same request may succeed later."},
    "faults": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "expected": {"type": "string"}, "got": {"type": "string"}},
        "required": ["path", "expected", "got"]
      }
    }
  },
  "required": ["errorName", "errorMessage"]
}`

// envelopeSchema is the CloudEvent around the data. Its keywords mean the same in every dialect.
func envelopeSchema() object {
	nullable := func(description string) object {
		return object{"type": []string{"string", "null"}, "description": description}
	}
	return object{
		"type":        "object",
		"description": "A CloudEvent. Null and absence mean the same; further members are extensions.",
		"properties": object{
			"specversion":     object{"const": wire.SpecVersion},
			"id":              object{"type": "string", "minLength": 1, "description": "Names the event together with source."},
			"source":          object{"type": "string", "minLength": 1, "description": "Who sent it; in a call, where the answer goes."},
			"type":            object{"type": "string", "minLength": 1},
			"subject":         nullable("Names the run, in the words of whoever started it."),
			"time":            nullable("RFC 3339."),
			"datacontenttype": nullable("application/json, or a type that ends in +json."),
			"dataschema":      nullable("The URI of the contract, a slash and the version."),
			"to":              nullable("The type of the contract that is meant."),
			"accesscontrol":   nullable("Carried through the run and never interpreted."),
			"redirectto":      nullable("Where an answer goes, for services that copy attributes."),
			"executionunits":  object{"type": []string{"number", "null"}, "description": "The cost so far."},
			"traceparent":     nullable("W3C trace context."),
			"tracestate":      nullable("W3C trace context."),
			"parentid":        nullable("The id of the event that this one answers."),
			"domain":          nullable("The routing lane."),
			"agent":           nullable("The name of the agent that asks."),
			"expirytime":      nullable("RFC 3339, on calls: when the caller gives up."),
		},
		"required": []string{"specversion", "id", "source", "type"},
	}
}

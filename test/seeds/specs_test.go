package seeds_test

import (
	"encoding/json"

	"agentd/sdk"
)

const version = "1.0.0"

// Schemas of data that tests use.
const (
	anyObject = `{"type": "object"}`
	// textAnswer is what an agent without an output schema of its own answers.
	textAnswer = `{"type": "object", "properties": {"response": {"type": "string"}}, "required": ["response"],
		"additionalProperties": false}`
	numberAnswer = `{"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"],
		"additionalProperties": false}`
	numberInput = `{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
		"additionalProperties": false}`
	valueAnswer = `{"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}`
	// delegatedInput is what an agent accepts that other agents call.
	delegatedInput = `{"type": "object", "properties": {
		"message": {"type": "string"}, "parentSubject$$": {"type": ["string", "null"]}
	}, "required": ["message", "parentSubject$$"], "additionalProperties": false}`
)

// contract has one version that accepts and emits those schemas. It answers with <type>.done.
func contract(contractType, accepts, emits string) sdk.Contract {
	return sdk.Contract{
		URI: "#/test/" + contractType, Type: contractType, Description: "A test's " + contractType + ".",
		Versions: map[string]sdk.ContractVersion{version: {
			Accepts: json.RawMessage(accepts), Emits: map[string]json.RawMessage{done(contractType): json.RawMessage(emits)},
		}},
	}
}

// done is the type of the answer of a contract of this test.
func done(contractType string) string { return contractType + ".done" }

// service is a tool that takes {"n": integer} and answers {"value": string}.
func service(contractType string) sdk.ServiceTool {
	return sdk.ServiceTool{Contract: contract(contractType, numberInput, valueAnswer), Version: version}
}

// deskType is the contract's type of desk.
const deskType = "test.desk"

// desk is an agent that takes any object and answers in text. Its model is called "desk".
func desk(services ...sdk.ServiceTool) sdk.Agent {
	return agent("desk", contract(deskType, anyObject, textAnswer), services...)
}

// agent names its model after itself.
func agent(name string, own sdk.Contract, services ...sdk.ServiceTool) sdk.Agent {
	return sdk.Agent{Spec: sdk.AgentSpec{
		Name: name, Contract: own, Version: version, Model: sdk.ModelSpec{Provider: "script", Name: name}, Services: services,
	}}
}

// n is the arguments of service.
func n(number int) map[string]any { return map[string]any{"n": number} }

// value is the answer of service.
func value(text string) map[string]any { return map[string]any{"value": text} }

// message is an input with a message, which is the first that the model sees.
func message(text string) map[string]any { return map[string]any{"message": text} }

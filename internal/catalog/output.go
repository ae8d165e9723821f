package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"agentd/internal/core"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// output makes an agent's answer of what its model said.
type output struct {
	schema *schema.Schema
	// free says that the contract takes {"response": text}, so that any text is an answer.
	free bool
	// hook is the agent's own output builder, or nil.
	hook func(context.Context, sdk.OutputInput) (json.RawMessage, error)
}

func newOutput(schema *schema.Schema, hook func(context.Context, sdk.OutputInput) (json.RawMessage, error)) *output {
	probe, err := response("text")
	return &output{schema: schema, free: err == nil && len(schema.Validate(probe)) == 0, hook: hook}
}

func response(text string) (json.RawMessage, error) {
	return json.Marshal(map[string]string{"response": text})
}

// build returns data that conforms to the contract, or says in words for the model what is wrong, so that
// it corrects itself. An error of the hook is such a fault, unless ctx ended.
func (o *output) build(ctx context.Context, in sdk.OutputInput) (json.RawMessage, string, error) {
	if o.hook != nil {
		data, err := o.hook(ctx, in)
		if err != nil {
			if ctx.Err() != nil {
				return nil, "", err
			}
			return nil, faultText(err), nil
		}
		return o.check(data)
	}
	data := json.RawMessage(unfenced(in.Text))
	if o.free && !o.isResponse(data) {
		wrapped, err := response(in.Text)
		if err != nil {
			return nil, "", err
		}
		return o.check(wrapped) // the contract may bound the text
	}
	return o.check(data)
}

// isResponse reports whether the text already is the whole answer as JSON, as the result of a stop-on tool may be.
func (o *output) isResponse(data json.RawMessage) bool {
	if !bytes.HasPrefix(data, []byte("{")) { // as most texts, which are trimmed by now
		return false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil || fields["response"] == nil {
		return false
	}
	return len(o.schema.Validate(data)) == 0
}

func (o *output) check(data json.RawMessage) (json.RawMessage, string, error) {
	canonical, err := wire.Canonicalize(data)
	if err != nil {
		return nil, faultText(sdk.Errorf(sdk.CodeContractViolation, "the answer must be one JSON object: %s", err)), nil
	}
	if faults := o.schema.Validate(canonical); len(faults) > 0 {
		return nil, faultText(&sdk.Error{
			Code: sdk.CodeContractViolation, Message: "the answer does not fit the output's schema", Faults: faults,
		}), nil
	}
	return canonical, "", nil
}

// faultText is what the model is told of a fault, in the form of a failed tool's result.
func faultText(err error) string {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		e = sdk.Errorf(sdk.CodeContractViolation, "%s", err)
	}
	return string(core.FailureData(e))
}

// unfenced removes a Markdown code fence around the whole text, which many models put around JSON.
func unfenced(text string) string {
	text = strings.TrimSpace(text)
	inner, ok := strings.CutPrefix(text, "```")
	if !ok {
		return text
	}
	inner, ok = strings.CutSuffix(inner, "```")
	if !ok {
		return text
	}
	if _, body, ok := strings.Cut(inner, "\n"); ok {
		return strings.TrimSpace(body)
	}
	return strings.TrimSpace(inner)
}

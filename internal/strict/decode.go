package strict

import (
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// forms are what files write otherwise than JSON of Go values: durations and prices, and texts that look like numbers.
var forms = json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, target *time.Duration) error {
		text, err := scalar(d)
		if *target = 0; err == nil && text != "0" {
			*target, err = ParseDuration(text)
		}
		return err
	}),
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, target *sdk.Units) error {
		text, err := scalar(d)
		if err == nil {
			*target, err = wire.ParseUnits(text)
		}
		return err
	}),
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, target *string) (err error) {
		*target, err = scalar(d)
		return err
	}),
))

func scalar(d *jsontext.Decoder) (string, error) {
	token, err := d.ReadToken()
	return token.String(), err
}

// Decode reads what n has into target, a pointer to what has JSON names, and leaves alone what n does not have. Check comes
// before it; what a schema cannot say, such as that a duration is too long, is noted here.
func (r *Reader) Decode(n *Node, target any) {
	for n.Present() {
		err := json.Unmarshal(n.JSON(), target, forms)
		if err == nil {
			return
		}
		at, message := n, err.Error()
		if e, ok := errors.AsType[*json.SemanticError](err); ok {
			at = n.at(strings.Split(strings.TrimPrefix(string(e.JSONPointer), "/"), "/"))
			if e.Err != nil {
				message = e.Err.Error()
			}
			if e, ok := errors.AsType[*sdk.Error](e.Err); ok {
				message = e.Message
			}
		}
		r.Faultf(at.Position, "%s", message)
		if at.remove(); at == n {
			return
		}
	}
}

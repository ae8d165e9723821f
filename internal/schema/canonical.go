package schema

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"agentd/sdk"
)

// Canonical is RFC 8785, except that integers keep their digits: a bound of a schema such as 2^63-1 must not be rounded.
// Unlike wire.Canonicalize it knows no limit of size.
func Canonical(data []byte) (json.RawMessage, error) {
	value := jsontext.Value(bytes.Clone(data))
	if err := value.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "JSON has no canonical form").WithCause(err)
	}
	return json.RawMessage(value), nil
}

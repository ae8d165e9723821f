package contracts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"agentd/sdk"
)

// SpecDigest returns the canonical JSON of spec and its SHA-256 in lower-case hexadecimal: the name of the spec that runs
// keep. Decoding the JSON gives a spec of the same digest.
func SpecDigest(spec sdk.AgentSpec) (digest string, data []byte, err error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return "", nil, fmt.Errorf("encode spec of agent %s: %w", spec.Name, err)
	}
	if data, err = canonical(encoded); err != nil {
		return "", nil, fmt.Errorf("canonical spec of agent %s: %w", spec.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), data, nil
}

// canonical is RFC 8785, except that integers keep their digits: a bound of a schema such as 2^63-1 must not be rounded.
// Unlike wire.Canonicalize it knows no limit of size.
func canonical(data []byte) (json.RawMessage, error) {
	value := jsontext.Value(bytes.Clone(data))
	if err := value.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "JSON has no canonical form").WithCause(err)
	}
	return json.RawMessage(value), nil
}

package contracts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"agentd/internal/schema"
	"agentd/sdk"
)

// SpecDigest returns the canonical JSON of spec and its SHA-256 in lower-case hexadecimal: the name of the spec that runs
// keep. Decoding the JSON gives a spec of the same digest.
func SpecDigest(spec sdk.AgentSpec) (digest string, data []byte, err error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return "", nil, fmt.Errorf("encode spec of agent %s: %w", spec.Name, err)
	}
	if data, err = schema.Canonical(encoded); err != nil {
		return "", nil, fmt.Errorf("canonical spec of agent %s: %w", spec.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), data, nil
}

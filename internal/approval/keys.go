package approval

import (
	"crypto/ed25519"

	"agentd/sdk"
)

// Keys are the public keys whose signatures count, by domain.
type Keys map[string][]ed25519.PublicKey

// Verify reports whether an event is signed with a key of one of the domains. The error is CodeDecisionRefused.
func (k Keys) Verify(domains []string, ev sdk.Event) error {
	for _, domain := range domains {
		for _, key := range k[domain] {
			if verified(key, ev) {
				return nil
			}
		}
	}
	return sdk.Errorf(sdk.CodeDecisionRefused, "the decision is not signed with a key of the domain it was asked in")
}

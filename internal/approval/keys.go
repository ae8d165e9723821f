package approval

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"

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

// Signer signs decisions.
type Signer struct {
	id  string
	key ed25519.PrivateKey
}

// NewSigner returns a signer. Its signatures name the key by the first 8 bytes of the SHA-256 of the public key, in
// hexadecimal; verifying tries every key of the domain, whatever the name.
func NewSigner(key ed25519.PrivateKey) *Signer {
	public, _ := key.Public().(ed25519.PublicKey) // it has no other kind
	sum := sha256.Sum256(public)
	return &Signer{hex.EncodeToString(sum[:8]), key}
}

// ReadSigner reads an Ed25519 key from a PEM file (PKCS #8), as `openssl genpkey -algorithm ed25519` writes it.
func ReadSigner(path string) (*Signer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key that signs decisions: %w", err)
	}
	bad := func(why string) (*Signer, error) {
		return nil, sdk.Errorf(sdk.CodeConfig, "%s holds no key to sign decisions with: %s; make one with: openssl genpkey -algorithm ed25519", path, why)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return bad("it is no PEM file")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return bad("it has no private key of the form PKCS #8")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return bad("its key is not an Ed25519 key")
	}
	return NewSigner(key), nil
}

// Sign returns the event with the signer's signature.
func (s *Signer) Sign(ev sdk.Event) (sdk.Event, error) { return Sign(ev, s.id, s.key) }

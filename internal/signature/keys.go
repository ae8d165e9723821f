package signature

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Keys are the public keys whose signatures count, by domain.
type Keys map[string][]sdk.DecisionKey

// Verify returns the fingerprint of the key of one of the domains that signed an event, which the principal who published.
// The error is CodeDecisionRefused.
func (k Keys) Verify(domains []string, ev wire.Event, who string) (string, error) {
	owner := ""
	for _, domain := range domains {
		for _, key := range k[domain] {
			switch {
			case !verified(key.Public, ev):
			case key.Principal == "" || key.Principal == who:
				return Fingerprint(key.Public), nil
			default:
				owner = key.Principal
			}
		}
	}
	if owner != "" {
		return "", sdk.Errorf(sdk.CodeDecisionRefused, "the decision is signed with the key of %q, and was published by %q", owner, who)
	}
	return "", sdk.Errorf(sdk.CodeDecisionRefused, "the decision is not signed with a key of the domain it was asked in")
}

// Fingerprint names a public key: the first 16 bytes of its SHA-256, in hexadecimal.
func Fingerprint(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:16])
}

// Signer signs decisions.
type Signer struct {
	id  string
	key ed25519.PrivateKey
}

// NewSigner returns a signer. Its signatures name the key by its fingerprint; verifying tries every key of the domain,
// whatever the name.
func NewSigner(key ed25519.PrivateKey) *Signer {
	public, _ := key.Public().(ed25519.PublicKey) // it has no other kind
	return &Signer{Fingerprint(public), key}
}

// ReadKey reads an Ed25519 key from a PEM file (PKCS #8), as `openssl genpkey -algorithm ed25519` writes it.
func ReadKey(path string) (ed25519.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key that signs decisions: %w", err)
	}
	bad := func(why string) (ed25519.PrivateKey, error) {
		return nil, sdk.Errorf(sdk.CodeConfig, "%s holds no key to sign decisions with: %s; make one with: openssl genpkey -algorithm ed25519", path, why)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return bad("it is not a PEM file")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return bad("it has no private key of the form PKCS #8")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return bad("its key is not an Ed25519 key")
	}
	return key, nil
}

// Sign returns the event with the signer's signature.
func (s *Signer) Sign(ev wire.Event) (wire.Event, error) { return Sign(ev, s.id, s.key) }

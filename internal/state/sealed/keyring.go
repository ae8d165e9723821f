package sealed

import (
	"cmp"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/chacha20poly1305"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// NewKey returns a random key in the form that ParseKey reads: standard base64.
func NewKey() string {
	var b [KeySize]byte
	rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

// ParseKey reads a key in standard or URL-safe base64, with or without padding. The error shows nothing of the text.
func ParseKey(text string) ([]byte, error) {
	for _, encoding := range []*base64.Encoding{
		base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
	} {
		if key, err := encoding.DecodeString(text); err == nil {
			return key, checkKey(key)
		}
	}
	return nil, sdk.Errorf(sdk.CodeConfig, "want %d bytes in base64, got %d characters that are not base64; make a key with: agentd keys new",
		KeySize, len(text))
}

func checkKey(key []byte) error {
	if len(key) != KeySize {
		return sdk.Errorf(sdk.CodeConfig, "want %d bytes in base64, got %d bytes; make a key with: agentd keys new", KeySize, len(key))
	}
	return nil
}

// CheckKeyID reports whether id can name a key.
func CheckKeyID(id string) error {
	if !wire.IsToken(id, wire.MaxKeyID) {
		return sdk.Errorf(sdk.CodeConfig, "key id %q: want 1 to %d of letters, digits, _ and -", id, wire.MaxKeyID)
	}
	return nil
}

// Options are what a Keyring is made of. The zero Options seal nothing.
type Options struct {
	// Current is the id of the key that everything new is sealed with.
	Current string
	// Keys are KeySize random bytes each, by id. An id must never be given to another key.
	Keys map[string][]byte
	// AllowPlaintext also reads what was stored before encryption was turned on. While it is set, who can write to the
	// store can begin a run in plaintext; see docs/encryption.md.
	AllowPlaintext bool
}

// Keyring holds the keys of a Store. It is immutable. The zero Keyring seals nothing and opens nothing.
type Keyring struct {
	current        *key
	keys           []*key // the current one first, then by id
	allowPlaintext bool
}

// NewKeyring derives what the keys are used for. The error has CodeConfig and lists everything that is wrong.
func NewKeyring(o Options) (*Keyring, error) {
	r := &Keyring{allowPlaintext: o.AllowPlaintext}
	var faults []error
	for id, secret := range o.Keys {
		if err := cmp.Or(CheckKeyID(id), checkKey(secret)); err != nil {
			faults = append(faults, fmt.Errorf("encryption key %q: %w", id, err))
			continue
		}
		k, err := newKey(id, secret)
		if err != nil {
			return nil, err
		}
		r.keys = append(r.keys, k)
		if id == o.Current {
			r.current = k
		}
	}
	if _, ok := o.Keys[o.Current]; !ok && (o.Current != "" || len(o.Keys) > 0) {
		faults = append(faults, sdk.Errorf(sdk.CodeConfig, "the current encryption key %q is not among the keys", o.Current))
	}
	slices.SortFunc(r.keys, func(a, b *key) int {
		if (a == r.current) != (b == r.current) {
			if a == r.current {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.id, b.id)
	})
	return r, errors.Join(faults...)
}

// Current is the id of the key that everything new is sealed with; "" when nothing is sealed.
func (r *Keyring) Current() string {
	if r.current == nil {
		return ""
	}
	return r.current.id
}

func (r *Keyring) key(id string) *key {
	i := slices.IndexFunc(r.keys, func(k *key) bool { return k.id == id })
	if i < 0 {
		return nil
	}
	return r.keys[i]
}

// fingerprintSize is how many bytes tell keys of one id apart: a slip of the operator is to be noticed, not an attack,
// which the authentication notices.
const fingerprintSize = 8

// key is a key with what is derived from it, so that no secret serves two purposes.
type key struct {
	id          string
	fingerprint []byte
	aead        cipher.AEAD
	// names hides digests of contents, nonces makes nonces of contents.
	names, nonces []byte
}

func newKey(id string, secret []byte) (*key, error) {
	k := &key{id: id}
	var box []byte
	for _, d := range []struct {
		purpose string
		size    int
		into    *[]byte
	}{
		{"seal", chacha20poly1305.KeySize, &box},
		{"fingerprint", fingerprintSize, &k.fingerprint},
		{"name", sha256.Size, &k.names},
		{"nonce", sha256.Size, &k.nonces},
	} {
		derived, err := hkdf.Key(sha256.New, secret, nil, "agentd at rest 1: "+d.purpose, d.size)
		if err != nil {
			return nil, fmt.Errorf("derive from encryption key %q: %w", id, err)
		}
		*d.into = derived
	}
	var err error
	if k.aead, err = chacha20poly1305.NewX(box); err != nil {
		return nil, fmt.Errorf("encryption key %q: %w", id, err)
	}
	return k, nil
}

// mac is HMAC-SHA256 over parts whose boundaries it covers.
func mac(secret []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, secret)
	for _, p := range parts {
		h.Write(frame(nil, p))
	}
	return h.Sum(nil)
}

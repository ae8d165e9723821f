package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"agentd/internal/config/strict"
	"agentd/sdk"
)

// Encryption says with what keys the store of runs is sealed (docs/encryption.md).
type Encryption struct {
	// Current is the id of the key that everything new is sealed with; empty is no encryption.
	Current string
	// Keys are in the order of the file.
	Keys []EncryptionKey
	// AllowPlaintext also reads what was stored before encryption was turned on.
	AllowPlaintext bool
}

// EncryptionKey is where a key is: in an environment variable, or in a file. Exactly one is set.
type EncryptionKey struct {
	ID        string
	Env, File string
	// At is its place in the configuration.
	At strict.Position
}

// Source says where the key is, for people.
func (k EncryptionKey) Source() string {
	if k.Env != "" {
		return "environment variable " + k.Env
	}
	return "file " + k.File
}

// ErrKeyAbsent says that a key's variable is not set, or that its file is not there.
var ErrKeyAbsent = errors.New("it is not there")

// maxKeyFile bounds what is read of a file of one key.
const maxKeyFile = 4 << 10

// Read returns the key's text, in base64, without white space around it. An empty one is absent (ErrKeyAbsent). lookup is
// os.LookupEnv.
func (k EncryptionKey) Read(lookup func(string) (string, bool)) (Secret, error) {
	text := ""
	if k.Env != "" {
		text, _ = lookup(k.Env)
	} else {
		info, err := os.Stat(k.File)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return "", fmt.Errorf("%s: %w", k.Source(), ErrKeyAbsent)
		case err == nil && info.Size() > maxKeyFile:
			return "", fmt.Errorf("%s: %d bytes are no key", k.Source(), info.Size())
		}
		data, err := os.ReadFile(k.File)
		if err != nil {
			return "", errors.New(reading(k.Source(), err))
		}
		text = string(data)
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("%s: %w", k.Source(), ErrKeyAbsent)
	}
	return Secret(text), nil
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// keyID is what the id of a key may be; package sealed says the same.
var keyID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

func (l *loader) encryption(f *encryptionFile) {
	if f == nil {
		return
	}
	e := &l.cfg.Encryption
	e.Current, e.AllowPlaintext = f.Current.V, f.AllowPlaintext.V
	for _, entry := range f.Keys {
		l.encryptionKey(entry.Key, entry.Value)
	}
	switch {
	case len(f.Keys) == 0:
		l.Faultf(f.At, "encryption needs keys, such as {current: k1, keys: {k1: {env: AGENTD_KEY_K1}}}; make one with: agentd keys new")
	case !f.Current.Present():
		l.Faultf(f.At, "encryption needs current: the id of the key that everything new is sealed with")
	case !l.cfg.Encryption.has(e.Current):
		l.Faultf(f.Current.Position, "the current key %q is not among the keys", e.Current)
	}
}

func (e Encryption) has(id string) bool {
	for _, k := range e.Keys {
		if k.ID == id {
			return true
		}
	}
	return false
}

func (l *loader) encryptionKey(id words, n strict.Node) {
	var f keyFile
	if n.Mapping() {
		l.Decode(n, &f)
	} // else it may be the key itself, which must not be repeated
	k := EncryptionKey{ID: id.V, Env: f.Env.V, At: id.Position}
	if f.File.V != "" {
		k.File = l.path(f.File.V)
		l.watch(k.File)
	}
	if !keyID.MatchString(k.ID) {
		l.Faultf(id.Position, "key id %q: want 1 to 32 of letters, digits, _ and -", k.ID)
	}
	switch {
	case (k.Env == "") == (k.File == ""):
		l.Faultf(id.Position, "key %q: want where it is, either {env: VARIABLE} or {file: PATH}, not the key itself", k.ID)
	case k.Env != "" && !envName.MatchString(k.Env):
		// A key that was put here by mistake must not be repeated.
		l.Faultf(f.Env.Position, "key %q: env is not the name of an environment variable", k.ID)
	}
	l.cfg.Encryption.Keys = append(l.cfg.Encryption.Keys, k)
}

// Fault says at the key's place in the configuration what is wrong with it.
func (k EncryptionKey) Fault(err error) Fault {
	message := err.Error()
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		message = k.Source() + ": " + e.Message
	}
	return Fault{Position: k.At, Message: fmt.Sprintf("key %q: %s", k.ID, message)}
}

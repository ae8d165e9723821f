package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"agentd/internal/spelling"
	"agentd/internal/strict"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Encryption says with what keys the store of runs is sealed (docs/encryption.md).
type Encryption struct {
	// Current is the id of the key that everything new is sealed with; empty turns encryption off.
	Current string `json:"current"`
	// Keys are in the order of the file.
	Keys []EncryptionKey `json:"-"`
	// AllowPlaintext also reads what was stored before encryption was turned on.
	AllowPlaintext bool `json:"allow_plaintext"`
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
			return "", fmt.Errorf("%s: %d bytes are too many for a key", k.Source(), info.Size())
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

func (l *loader) encryption(n *strict.Node) {
	e := &l.cfg.Encryption
	l.Decode(n, e)
	for _, key := range n.Get("keys").Items() {
		if !wire.IsToken(key.Name, wire.MaxKeyID) {
			l.Faultf(key.Key, "key id %q: want 1 to %d of letters, digits, _ and -", key.Name, wire.MaxKeyID)
		}
		k := EncryptionKey{ID: key.Name, Env: key.Get("env").Text(), At: key.Key}
		if file := key.Get("file"); file.Present() {
			k.File = l.path(file.Text())
			l.watch(k.File)
		}
		e.Keys = append(e.Keys, k)
	}
	if current := n.Get("current"); current.Present() && n.Get("keys").Present() && !slices.Contains(n.Get("keys").Names(), current.Text()) {
		l.Faultf(current.Position, "the current key %q is not among the keys%s", current.Text(), spelling.Suggest(current.Text(), n.Get("keys").Names()))
	}
}

// Fault says at the key's place in the configuration what is wrong with it.
func (k EncryptionKey) Fault(err error) Fault {
	message := err.Error()
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		message = k.Source() + ": " + e.Message
	}
	return Fault{Position: k.At, Message: fmt.Sprintf("key %q: %s", k.ID, message)}
}

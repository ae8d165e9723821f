package config

import (
	"log/slog"

	"agentd/internal/address"
)

const redacted = "xxxxx"

// Secret is a text that is never printed: formatting, logging and encoding give a placeholder.
type Secret string

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString keeps %#v from printing the text.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// LogValue keeps loggers from printing the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps encoders from writing the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// URL is an address that may hold a password or a token, or several addresses with commas between them. Printed, it shows
// everything else.
type URL string

// Reveal returns the address with its password.
func (u URL) Reveal() string { return string(u) }

func (u URL) String() string { return address.Hide(string(u)) }

// GoString keeps %#v from printing the password.
func (u URL) GoString() string { return `"` + u.String() + `"` }

// LogValue keeps loggers from printing the password.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText keeps encoders from writing the password.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

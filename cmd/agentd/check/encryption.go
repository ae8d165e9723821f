package check

import (
	"fmt"
	"io"
)

// checkedEncryption is what check says about encryption.
type checkedEncryption struct {
	Current        string       `json:"current"`
	AllowPlaintext bool         `json:"allow_plaintext"`
	Keys           []checkedKey `json:"keys"`
}

// checkedKey is a key; Readable says that it is there, where check runs.
type checkedKey struct {
	ID       string `json:"id"`
	Source   string `json:"source"`
	Readable bool   `json:"readable"`
}

func (e *checkedEncryption) write(w io.Writer) {
	if e == nil {
		return
	}
	fmt.Fprintf(w, "encryption: new entries are sealed with the key %q\n", e.Current)
	if e.AllowPlaintext {
		fmt.Fprintln(w, "encryption: what is in plaintext is read too")
	}
	for _, k := range e.Keys {
		state := "is there"
		if !k.Readable {
			state = "is not there, where this command runs"
		}
		fmt.Fprintf(w, "encryption: key %q %s (%s)\n", k.ID, state, k.Source)
	}
}

package sealed

import (
	"fmt"
	"strconv"

	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Fault says why something cannot be opened.
type Fault string

// The faults. All but FaultAltered may be a slip of the operator: whoever meets one must leave the run as it is.
const (
	// FaultNoKey: its key is not configured here.
	FaultNoKey Fault = "no_key"
	// FaultOtherKey: the key that is configured here under its key id is another one.
	FaultOtherKey Fault = "other_key"
	// FaultPlaintext: it is not sealed, although everything should be.
	FaultPlaintext Fault = "plaintext"
	// FaultAltered: it does not authenticate, or is in plaintext after what is sealed.
	FaultAltered Fault = "altered"
)

// Error says what cannot be opened, and why. By errors.Is it is runner.ErrCorrupt when it is altered, and otherwise an
// *sdk.Error with CodeConfig.
type Error struct {
	place
	Fault Fault
	// KeyID is what it claims to be sealed with; "" where it cannot be read.
	KeyID string
}

// Run is the run that it belongs to; the zero RunKey for a spec.
func (e *Error) Run() wire.RunKey { return e.run }

// Rev is the number of an entry, 0 of a content.
func (e *Error) Rev() uint64 { return e.rev }

func (p place) what() string {
	switch p.kind {
	case kindEntry:
		return fmt.Sprintf("entry %d of run %s", p.rev, p.run)
	case kindBlob:
		return fmt.Sprintf("a blob of run %s", p.run)
	case kindDocument:
		return fmt.Sprintf("the index document of run %s", p.run)
	}
	return "an agent spec"
}

func (e *Error) Error() string {
	switch e.Fault {
	case FaultNoKey:
		return fmt.Sprintf("%s is sealed with the key %q, which is not configured here; add it to encryption.keys and start again",
			e.what(), e.KeyID)
	case FaultOtherKey:
		return fmt.Sprintf("%s is sealed with another key than the one that is configured here as %q; correct encryption.keys and start again",
			e.what(), e.KeyID)
	case FaultPlaintext:
		return fmt.Sprintf("%s is not sealed, although encryption is on: it was stored before (encryption.allow_plaintext: true reads it), "+
			"by a worker without encryption, or by somebody who should not write to the store", e.what())
	case FaultAltered:
	}
	text := e.what() + " does not authenticate"
	if e.KeyID != "" {
		text += " with the key " + strconv.Quote(e.KeyID)
	}
	return text + ": it was altered, or put here from another place"
}

func (e *Error) Unwrap() error {
	if e.Fault == FaultAltered {
		return runner.ErrCorrupt
	}
	return sdk.Errorf(sdk.CodeConfig, "%s", e.Error())
}

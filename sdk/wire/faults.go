package wire

import (
	"fmt"
	"strconv"

	"agentd/internal/clip"
	"agentd/sdk"
)

const (
	// maxFaults bounds the faults of one error, so that a hostile event cannot make an endless one.
	maxFaults = 32
	// maxShown bounds, in bytes, what an error quotes of an event.
	maxShown = 96
)

// faults collects every violation of one text, in the order found.
type faults struct {
	list    []sdk.Fault
	omitted int
}

func (f *faults) add(path, expected, got string) {
	if len(f.list) == maxFaults {
		f.omitted++
		return
	}
	f.list = append(f.list, sdk.Fault{Path: clip.Text(path, maxShown), Expected: expected, Got: clip.Text(got, maxShown)})
}

func (f *faults) has(path string) bool {
	for _, fault := range f.list {
		if fault.Path == path {
			return true
		}
	}
	return false
}

// err returns nil when nothing was found, and otherwise a refusal with every fault.
func (f *faults) err(message string) error {
	if len(f.list) == 0 {
		return nil
	}
	if f.omitted > 0 {
		message = fmt.Sprintf("%s (%d more faults are not listed)", message, f.omitted)
	}
	return &sdk.Error{Code: sdk.CodeInvalidEvent, Message: message, Faults: f.list}
}

// quote shows a text of an event in an error; control characters and invalid UTF-8 are escaped.
func quote(s string) string { return strconv.Quote(clip.Text(s, maxShown)) }

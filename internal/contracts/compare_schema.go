package contracts

import (
	"bytes"
	"encoding/json"
	"strings"
)

// compareSchemas compares the schemas of one side.
func compareSchemas(side string, from, to json.RawMessage) []Change {
	a, errA := canonical(from)
	b, errB := canonical(to)
	if errA == nil && errB == nil && bytes.Equal(a, b) {
		return nil
	}
	who := breaksReaders
	if strings.HasPrefix(side, sideAccepts) {
		who = breaksCallers
	}
	return []Change{{Severity: Breaking, Side: side, Path: "$", Breaks: who, Message: "the schema changes"}}
}

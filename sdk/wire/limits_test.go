package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentd/sdk"
)

// object is a JSON object of n members.
func object(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"k%d":0`, i)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// TestLimits_OfData holds in both modes, and in both directions.
func TestLimits_OfData(t *testing.T) {
	t.Parallel()
	headers := map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"s"}, "ce-type": {"t"}}
	for data, allowed := range map[string]bool{
		object(maxDataKeys): true, object(maxDataKeys + 1): false, "[" + object(2) + "]": false,
		strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth):     true,
		strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1): false,
	} {
		_, binary := DecodeEvent(headers, []byte(data))
		_, structured := DecodeEvent(nil, []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","data":`+data+`}`))
		_, encoded := Event{ID: "1", Source: "s", Type: "t", Data: []byte(data)}.Encode()
		for what, err := range map[string]error{"binary": binary, "structured": structured, "encoded": encoded, "checked": CheckData([]byte(data))} {
			if (err == nil) != allowed || err != nil && !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) {
				t.Errorf("%s, %.20s… of %d bytes: %v, allowed should be %v", what, data, len(data), err, allowed)
			}
		}
	}
	if err := CheckData([]byte(`{"a":"` + strings.Repeat("x", MaxData) + `"}`)); !errors.Is(err, &sdk.Error{Code: sdk.CodeTooLarge}) {
		t.Errorf("more than any event holds: %v", err)
	}
}

// TestLimits_OfTheEnvelope: members of the envelope that are not data are not counted as data's, and yet bounded.
func TestLimits_OfTheEnvelope(t *testing.T) {
	t.Parallel()
	of := func(members int) string {
		return `{"specversion":"1.0","id":"1","source":"s","type":"t",` + strings.Trim(object(members), "{}") + `}`
	}
	if _, err := DecodeEvent(nil, []byte(of(MaxExtensions))); err != nil {
		t.Errorf("%d extensions: %v", MaxExtensions, err)
	}
	for _, n := range []int{MaxExtensions + 1, 50_000} {
		_, err := DecodeEvent(nil, []byte(of(n)))
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%d extensions: %v", n, err)
		}
	}
	_, err := DecodeEvent(nil, []byte(of(50_000)))
	if err == nil || !strings.Contains(err.Error(), "object members in total") {
		t.Errorf("an envelope of 50000 members is read to its end: %v", err)
	}
}

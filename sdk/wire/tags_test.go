package wire_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"agentd/sdk"
	"agentd/sdk/wire"
)

func TestParseTags(t *testing.T) {
	t.Parallel()
	tags, err := wire.ParseTags("tenant=acme,order=7,note=a=b ü,empty=")
	want := map[string]string{"tenant": "acme", "order": "7", "note": "a=b ü", "empty": ""}
	if err != nil || !maps.Equal(tags, want) {
		t.Errorf("%v %v", tags, err)
	}
	if got := wire.FormatTags(tags); got != "empty=,note=a=b ü,order=7,tenant=acme" {
		t.Error(got)
	}
	if tags, err = wire.ParseTags(""); err != nil || tags != nil {
		t.Errorf("%v %v, want none", tags, err)
	}
}

func TestParseTags_SaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := wire.ParseTags("Tenant=acme,order,a=1,a=2,long=" + strings.Repeat("x", 129) + ",bad=\x01")
	want := "invalid_event: the tags are not valid; $.tags[1]: expected key=value, got order; $.tags[3]: expected each key once, got a; " +
		`$.tags: expected a key of 1 to 32 of a-z, 0-9, _ . -, got "Tenant"; ` +
		`$.tags.bad: expected at most 128 bytes of text without commas and control characters, got "\x01"; ` +
		`$.tags.long: expected at most 128 bytes of text without commas and control characters, got "` + strings.Repeat("x", 129) + `"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	many := map[string]string{}
	for c := range 17 {
		many[string(rune('a'+c))] = ""
	}
	if err := wire.CheckTags(many); !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) || !strings.Contains(err.Error(), "expected at most 16 tags, got 17") {
		t.Error(err)
	}
}

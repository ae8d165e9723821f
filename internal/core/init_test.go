package core_test

import (
	"encoding/json"
	"testing"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

func TestParentSubject_IsTheMemberHoweverItsNameIsWritten(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"message":"hi"}`:                      "",
		`{"message":"the \"parentSubject\""}`:   "",
		`{"parentSubject$$":"order 7"}`:         "order 7",
		`{"parent\u0053ubject\u0024$":"order"}`: "order",
		`{"parentSubject$$":7}`:                 "",
		`{"a":{"parentSubject$$":"order 7"}}`:   "",
		`["parentSubject$$"]`:                   "",
	} {
		if got, err := core.ParentSubject(wire.Event{Data: json.RawMessage(data)}); got != want || err != nil {
			t.Errorf("%s names %q, %v; want %q", data, got, err, want)
		}
	}
	if _, err := core.ParentSubject(wire.Event{Data: json.RawMessage(`{"parentSubject$$":"a\u0007"}`)}); err == nil {
		t.Error("a subject that no event can have is taken")
	}
}

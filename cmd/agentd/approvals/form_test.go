package approvals

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/cmd/agentd/internal/cli"
)

func TestForm_AsksForTheFieldsOfTheSchema(t *testing.T) {
	t.Parallel()
	schema := `{"type": "object", "required": ["seats", "who"], "properties": {
		"who": {"type": "string", "description": "For\u001b whom?"}, "seats": {"type": "integer", "minimum": 1}, "window": {"type": "boolean"},
		"class": {"enum": ["a", "b"]}, "note": {"type": "string"}}}`
	var asked strings.Builder
	p := prompt((&cli.App{Streams: cli.Streams{In: strings.NewReader("two\n\n0\n2\njane\nc\na\n\ntrue\n"), Err: &asked}}))
	got, err := p.form(t.Context(), json.RawMessage(schema))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"class":"a","seats":2,"who":"jane","window":true}`, string(got)); diff != "" {
		t.Errorf("form (-want +got):\n%s\n%s", diff, asked.String())
	}
	for _, want := range []string{
		"seats (integer) > ", "want integer, got string", "this one is needed", "want at least 1, got number 0", `want one of "a", "b"`, `who: For\u001b whom? (string) > `, `class (one of ["a","b"], optional) > `, "note (string, optional) > ",
	} {
		if !strings.Contains(asked.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, asked.String())
		}
	}
	if _, err := p.form(t.Context(), json.RawMessage(schema)); err == nil {
		t.Error("a form without input is sent")
	}
}

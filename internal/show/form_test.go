package show

import (
	"encoding/json"
	"strings"
	"testing"

	"agentd/internal/requests"
	"agentd/sdk/wire"
)

// A person can fill in what an MCP server asks from what is shown.
func TestRequest_ShowsEachFieldOfAForm(t *testing.T) {
	t.Parallel()
	data := `{"question":"Where to?","schema":{"type":"object","required":["city","nights"],"properties":{
		"class":{"type":"string","enum":["eco","first"],"enumNames":["Economy","First"],"default":"eco"},
		"city":{"type":"string","title":"City","description":"Where you \u001b[2Jgo","minLength":2},
		"nights":{"type":"integer","minimum":1,"maximum":30},
		"mail":{"type":"string","format":"email"},
		"pay":{"type":"string","oneOf":[{"const":"card","title":"Credit card"},{"const":"bank","title":"Bank"}]},
		"breakfast":{"type":"boolean","default":true}}}}`
	r := Request{Detail: requests.Detail{Item: requests.Item{Kind: requests.KindQuestion}, Text: "Where to?"}}
	r.Event = wire.Event{Data: json.RawMessage(data)}
	var b strings.Builder
	if err := r.writeAsked(&b); err != nil {
		t.Fatal(err)
	}
	const want = `
fields of the answer, a JSON object
  city       string          required  City; Where you \u001b[2Jgo; characters at least 2
  nights     integer         required  at least 1; at most 30
  breakfast  boolean         optional  default true
  class      string          optional  one of "eco" (Economy), "first" (First); default "eco"
  mail       string (email)  optional
  pay        string          optional  one of "card" (Credit card), "bank" (Bank)
`
	if !strings.Contains(b.String(), want) {
		t.Errorf("the form is shown as\n%s\nwant\n%s", b.String(), want)
	}
	if strings.Contains(b.String(), "written by the model") || !strings.Contains(b.String(), "written by a tool") {
		t.Errorf("who asks is shown as\n%s", b.String())
	}
}

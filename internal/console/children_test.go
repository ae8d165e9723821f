package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"agentd/internal/console/live"
	"agentd/internal/setup"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// What a called agent did stands at its call, without JavaScript and without another page.
func TestTimeline_ShowsWhatCalledAgentsDid(t *testing.T) {
	clerk := payer()
	clerk.Name, clerk.Model.Name, clerk.Permissions = "clerk", "clerk", nil
	clerk.Contract.URI, clerk.Contract.Type = "#/test/clerk", "clerk"
	clerk.Contract.Versions = map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}}}`),
		Emits:   map[string]json.RawMessage{"clerk.done": json.RawMessage(`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`)},
	}}
	desk := payer()
	desk.Model.Name, desk.Permissions = "desk", nil
	desk.Services = append(desk.Services, sdk.ServiceTool{Version: "1.0.0", Contract: clerk.Contract})
	models := map[string]*sdktest.Model{
		"desk":  sdktest.Script(sdktest.Ask(sdktest.Tool("clerk", map[string]string{"message": "look"})), sdktest.Say("done")),
		"clerk": sdktest.Script(sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "which one?"})), sdktest.Say("found")),
	}
	model := sdktest.ModelFunc(func(ctx context.Context, r sdk.ModelRequest) (sdk.ModelReply, error) {
		return models[r.Model].Generate(ctx, r, nil)
	})
	b := openAgents(t, []sdk.AgentSpec{desk, clerk}, model, live.Options{Who: setup.Principal{Who: "anna"}})
	run := b.start("calls", "go")
	b.asked()
	page := b.get(http.StatusOK, run+"/timeline")
	details := regexp.MustCompile(`(?s)<details class="child"><summary>clerk</summary>.*?</details>`).FindString(page)
	link := regexp.MustCompile(`href="(/runs/calls%2F[^"]+)/timeline"`).FindStringSubmatch(details)
	if link == nil {
		t.Fatalf("the call of the clerk leads nowhere:\n%s", page)
	}
	for _, want := range []string{"model call 1", "question", "goes on", `href="` + link[1] + `/journal/`} {
		if !strings.Contains(details, want) {
			t.Errorf("%q is not at the call of the clerk:\n%s", want, details)
		}
	}
	if child, err := url.PathUnescape(strings.TrimPrefix(link[1], "/runs/")); err != nil || !strings.HasPrefix(child, "calls/") {
		t.Errorf("the run that was called is %q: %v", child, err)
	}
	var programs struct {
		Spans []struct {
			Child *struct {
				Run   string `json:"run"`
				Spans []any  `json:"spans"`
			} `json:"child"`
		} `json:"spans"`
	}
	if err := json.Unmarshal([]byte(b.get(http.StatusOK, "/api/v1"+run+"/timeline")), &programs); err != nil {
		t.Fatal(err)
	}
	children := 0
	for _, s := range programs.Spans {
		if s.Child != nil && len(s.Child.Spans) > 1 {
			children++
		}
	}
	if children != 1 {
		t.Errorf("programs are told of %d runs that were called: %+v", children, programs)
	}
}

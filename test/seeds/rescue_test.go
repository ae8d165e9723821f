package seeds_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"agentd/internal/llm"
	"agentd/sdk"
)

// callRescued is row L58: a call that a model server could not read, and answered with status 500 for, is made where its tool is known, its
// arguments corrected; where it is not, and where the call ends in the middle, the model is asked again.
func callRescued(t *testing.T) {
	unread := func(raw, fault string) string {
		data, err := json.Marshal(map[string]any{"error": map[string]string{
			"message": "error parsing tool call: raw='" + raw + "', err=" + fault, "type": "api_error",
		}})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const done = `data: {"choices":[{"delta":{"role":"assistant","content":"done"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	for _, c := range []struct {
		name, body string
		tools      int
		// result is what becomes of the call; empty is that it is not made.
		result string
	}{
		{"one tool", unread(`{"n":1,}`, "invalid character '}'"), 1, `{"n":1}`},
		{"named", unread(`{"name":"note","arguments":{"n":2,}}`, "invalid character '}'"), 2, `{"n":2}`},
		{"of several", unread(`{"n":3,}`, "invalid character '}'"), 2, ""},
		{"of none that is offered", unread(`{"name":"drop","arguments":{"n":4,}}`, "invalid character '}'"), 1, ""},
		{"in the middle", unread(`{"n":5`, "unexpected end of JSON input"), 1, ""},
		{"another fault", `{"error":{"message":"raw='{}', err=out of memory"}}`, 1, ""},
	} {
		asked := 0
		var last string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // one that is cut off has no result, and fails below
			asked, last = asked+1, string(body)
			if asked > 1 {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, done) // who does not get it asks again
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, c.body)
		}))
		provider, err := llm.NewOpenAI(llm.OpenAIOptions{Name: "small", BaseURL: server.URL + "/v1", APIKey: "none"})
		if err != nil {
			t.Fatal(err)
		}
		p, slept := models(t, sdk.ModelSpec{Provider: "small", Name: "m"}, map[string]sdk.Provider{"small": provider}, 0)
		a := desk()
		a.Tools = []sdk.Tool{echo("note"), echo("file")}[:c.tools]
		a.Spec.Corrections = &sdk.Corrections{Arguments: true}
		h := start(t, p, a)
		r := h.Run("desk", message("hello"))
		succeeds(t, h, r, `{"response": "done"}`)
		server.Close()
		equal(t, c.name+": requests", asked, 2)
		if c.result == "" {
			equal(t, c.name+": pauses", *slept, []time.Duration{250 * time.Millisecond})
			equal(t, c.name+": messages", len(h.Messages(r)), 2)
			continue
		}
		equal(t, c.name+": pauses", len(*slept), 0)
		made := results(t, h.Messages(r), 1)
		ordered(t, made[0].Text, c.result)
		equal(t, c.name+": the model is told", strings.Contains(last, "a comma followed the last value"), true)
	}
}

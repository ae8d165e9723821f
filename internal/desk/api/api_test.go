package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentd/internal/desk"
	"agentd/internal/desk/api"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func payer() sdk.AgentSpec {
	schemas := func(uri, kind, emits, answer string) sdk.Contract {
		return sdk.Contract{URI: uri, Type: kind, Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type":"object"}`), Emits: map[string]json.RawMessage{emits: json.RawMessage(answer)},
		}}}
	}
	return sdk.AgentSpec{
		Name: "payer", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "test", Name: "scripted"},
		Contract: schemas("#/test/payer", "payer", "payer.done", `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
		Services: []sdk.ServiceTool{{Version: "1.0.0", Contract: schemas("#/test/pay", "bank.pay", "bank.paid", `{"type":"object"}`)}},
		Builtin:  []string{"ask_question"},
		Permissions: &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{
			Name: "money", Tools: []string{"bank_pay"}, Verdict: sdk.PermissionAsk,
		}}},
	}
}

// front is a desk behind the API.
type front struct {
	t   *testing.T
	h   *harness.Harness
	url string
	// token is what requests carry.
	token string
}

func start(t *testing.T, token string) *front {
	t.Helper()
	ask := sdktest.Tool("ask_question", map[string]string{"question": "Which account?"})
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: payer()}},
		Model:  sdktest.Script(sdktest.Ask(sdktest.Tool("bank_pay", map[string]any{"to": "\u202eEMCA"}), ask), sdktest.Say("paid")),
	})
	d, err := desk.Open(t.Context(), desk.Options{Conn: h.Conn(), Patience: harness.Patience})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Handler(api.Options{Desk: d, Who: "front", Token: token, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		d.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return &front{t: t, h: h, url: server.URL, token: token}
}

// new is a request with the token, and JSON if it is a POST; header replaces what it names.
func (f *front) new(method, path, body string, header http.Header) *http.Request {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if f.token != "" {
		r.Header.Set("Authorization", "Bearer "+f.token)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	return r
}

// request returns status, headers and body of the response.
func (f *front) request(method, path, body string, header http.Header) (int, http.Header, []byte) {
	f.t.Helper()
	response, err := http.DefaultClient.Do(f.new(method, path, body, header))
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, response.Header, data
}

func (f *front) call(want int, method, path, body string) (answer map[string]any) {
	f.t.Helper()
	status, _, data := f.request(method, path, body, nil)
	if status != want {
		f.t.Fatalf("%s %s answers %d: %s; want %d", method, path, status, data, want)
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		f.t.Fatalf("%s is not JSON: %v", data, err)
	}
	return answer
}

// event is a server-sent event.
type event struct {
	kind, id string
	data     map[string]any
}

// events reads the stream of events, after the event with that id.
func (f *front) events(after string) (next func() event) {
	f.t.Helper()
	response, err := http.DefaultClient.Do(f.new(http.MethodGet, "/v1/events", "", http.Header{"Last-Event-Id": {after}}))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return func() event {
		f.t.Helper()
		var e event
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				e.kind = value
			case "id":
				e.id = value
			case "data":
				if err := json.Unmarshal([]byte(value), &e.data); err != nil {
					f.t.Fatal(err)
				}
			case "":
				if e.kind != "" {
					return e
				}
			}
		}
		f.t.Fatalf("the events ended: %v", lines.Err())
		return e
	}
}

func TestAPI_ListsShowsDecidesAnswersAndTellsOfChanges(t *testing.T) {
	f := start(t, "")
	next := f.events("")
	if e := next(); e.kind != "reset" {
		t.Fatalf("the first event is %+v; want a reset", e)
	}
	r := f.h.Run("payer", map[string]string{})
	ids := map[string]string{}
	var last string
	for range 2 {
		e := next()
		item, _ := e.data["item"].(map[string]any)
		if e.kind != "added" {
			t.Fatalf("the event is %+v; want one that adds", e)
		}
		ids[item["kind"].(string)], last = item["id"].(string), e.id
	}
	if list := f.call(http.StatusOK, http.MethodGet, "/v1/requests", ""); len(list["requests"].([]any)) != 2 {
		t.Errorf("the list is %v", list)
	}
	id := ids["permission"]
	shown := f.call(http.StatusOK, http.MethodGet, "/v1/requests/"+id, "")["request"].(map[string]any)
	if to := shown["args"].(map[string]any)["to"]; to != "\u202eEMCA" {
		t.Errorf("the arguments are %v; JSON must carry them as they are", shown["args"])
	}
	hash := shown["args_sha256"].(string)
	f.call(http.StatusUnprocessableEntity, http.MethodPost, "/v1/requests/"+id+"/decision", `{"decision":"allow"}`)
	o := f.call(http.StatusConflict, http.MethodPost, "/v1/requests/"+id+"/decision", `{"decision":"allow","args_sha256":"`+strings.Repeat("0", 64)+`"}`)
	if o["state"] != "refused" || o["open"] != true || !strings.Contains(fmt.Sprint(o["refused"]), "other arguments") {
		t.Errorf("of a decision on other arguments it answers %v", o)
	}
	o = f.call(http.StatusOK, http.MethodPost, "/v1/requests/"+id+"/decision", `{"decision":"allow","args_sha256":"`+hash+`"}`)
	if o["state"] != "counted" || o["who"] != "front" {
		t.Errorf("the outcome is %v", o)
	}
	f.h.Call("bank.pay").Answer("bank.paid", map[string]any{})
	f.call(http.StatusUnprocessableEntity, http.MethodPost, "/v1/requests/"+ids["question"]+"/answer", `{"data":{"answer":5}}`)
	f.call(http.StatusOK, http.MethodPost, "/v1/requests/"+ids["question"]+"/answer", `{"text":"A"}`)
	f.h.Done(r)
	f.call(http.StatusNotFound, http.MethodPost, "/v1/requests/"+id+"/decision", `{"decision":"allow","args_sha256":"`+hash+`"}`)
	// A client that comes back gets what it missed, and nothing twice.
	again := f.events(last)
	got := map[string]int{}
	for range 4 {
		e := again()
		got[e.kind]++
	}
	if got["decided"] != 2 || got["removed"] != 2 {
		t.Errorf("after %s came %v; want two decided and two removed", last, got)
	}
	if e := f.events("another-7")(); e.kind != "reset" {
		t.Errorf("an id of another process is answered with %+v; want a reset", e)
	}
}

func TestAPI_LetsNobodyInWithoutTheToken(t *testing.T) {
	f := start(t, "secret")
	f.call(http.StatusOK, http.MethodGet, "/v1/requests", "")
	for _, header := range []string{"", "Bearer ", "Bearer secre", "Bearer secret2", "secret", "Basic secret"} {
		status, _, _ := f.request(http.MethodGet, "/v1/requests", "", http.Header{"Authorization": {header}})
		if status != http.StatusUnauthorized {
			t.Errorf("Authorization %q is answered with %d", header, status)
		}
	}
}

// What a page of another site can make a browser send is refused.
func TestAPI_RefusesWhatABrowserCanBeMadeToSend(t *testing.T) {
	f := start(t, "")
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
		status, _, _ := f.request(http.MethodPost, "/v1/requests/c1/decision", `{}`, http.Header{"Content-Type": {kind}})
		if status != http.StatusUnsupportedMediaType {
			t.Errorf("content type %q is answered with %d", kind, status)
		}
	}
	status, header, _ := f.request(http.MethodOptions, "/v1/requests/c1/decision", "", http.Header{"Origin": {"https://evil.example"}})
	if status < 400 || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight is answered with %d, %v", status, header)
	}
	if status, _, _ := f.request(http.MethodGet, "/v1/requests", "", http.Header{"Host": {"evil.example"}}); status != http.StatusForbidden {
		t.Errorf("another host name is answered with %d", status)
	}
	own := strings.TrimPrefix(f.url, "http://")
	for header, want := range map[[2]string]int{
		{"Origin", "https://evil.example"}: http.StatusForbidden, {"Origin", "null"}: http.StatusForbidden,
		{"Origin", "http://127.0.0.1:1"}: http.StatusForbidden, {"Origin", "http://" + own}: http.StatusOK,
		{"Sec-Fetch-Site", "cross-site"}: http.StatusForbidden, {"Sec-Fetch-Site", "same-origin"}: http.StatusOK,
		{"Sec-Fetch-Site", "none"}: http.StatusOK,
	} {
		if status, _, _ := f.request(http.MethodGet, "/v1/requests", "", http.Header{header[0]: {header[1]}}); status != want {
			t.Errorf("%v is answered with %d; want %d", header, status, want)
		}
	}
}

func TestAPI_BodiesAreBoundedAndExact(t *testing.T) {
	f := start(t, "")
	f.call(http.StatusRequestEntityTooLarge, http.MethodPost, "/v1/requests/c1/decision", `{"reason":"`+strings.Repeat("x", 2<<20)+`"}`)
	for _, body := range []string{"", "{", "[]", `{"verdict":"allow"}`, `{} {}`} {
		f.call(http.StatusBadRequest, http.MethodPost, "/v1/requests/c1/decision", body)
	}
	f.call(http.StatusNotFound, http.MethodGet, "/v1/requests/c1", "")
}

package console_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/config"
	"agentd/internal/console/live"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/setup"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostile is text that must never be anything but text: markup, a link, a picture, characters that cannot be seen, and no UTF-8.
const hostile = "<script>alert(1)</script><img src=https://evil.example/x>[a](https://evil.example)\u202e\u200b\x1b[2J"

func payer() sdk.AgentSpec {
	schemas := func(uri, kind, accepts, emits, answer string) sdk.Contract {
		return sdk.Contract{URI: uri, Type: kind, Description: hostile, Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(accepts), Emits: map[string]json.RawMessage{emits: json.RawMessage(answer)},
		}}}
	}
	return sdk.AgentSpec{
		Name: "payer", Version: "1.0.0", Description: hostile, Model: sdk.ModelSpec{Provider: "test", Name: "scripted"}, System: hostile,
		Contract: schemas("#/test/payer", "payer", `{"type":"object","properties":{"message":{"type":"string","default":"pay"}},"required":["message"]}`, "payer.done",
			`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
		Services: []sdk.ServiceTool{{Version: "1.0.0", Contract: schemas("#/test/pay", "bank.pay",
			`{"type":"object","properties":{"to":{"type":"string"},"euros":{"type":"integer"},"note":{"type":"string"},"fast":{"type":"boolean"}}}`,
			"bank.paid", `{"type":"object"}`)}},
		Builtin: []string{"ask_question"},
		Permissions: &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{
			Name: "money", Tools: []string{"bank_pay"}, Verdict: sdk.PermissionAsk, Reason: hostile, Risk: "high",
		}}},
	}
}

// browser is a console on a broker, and somebody who asks it for pages.
type browser struct {
	t   testing.TB
	h   *harness.Harness
	url string
	// cookies are sent with each request.
	cookies []*http.Cookie
	client  *http.Client
}

// paying is what the model does: it pays, and asks a question with hostile text.
func paying() sdk.Provider {
	return sdktest.Script(
		sdktest.Ask(sdktest.Tool("bank_pay", map[string]any{"to": hostile, "euros": 12, "note": "for lunch", "fast": true})),
		sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": hostile})),
		sdktest.Say(hostile),
	)
}

func open(t testing.TB, model sdk.Provider, who, token string) *browser {
	t.Helper()
	return openWith(t, model, live.Options{Who: setup.Principal{Who: who}, Token: token})
}

// openWith opens a console with these options, and what is needed besides.
func openWith(t testing.TB, model sdk.Provider, o live.Options) *browser {
	t.Helper()
	return openFor(t, payer(), model, o)
}

// openFor is openWith for another payer.
func openFor(t testing.TB, spec sdk.AgentSpec, model sdk.Provider, o live.Options) *browser {
	t.Helper()
	return openAgents(t, []sdk.AgentSpec{spec}, model, o)
}

// openAgents is openWith for these agents.
func openAgents(t testing.TB, specs []sdk.AgentSpec, model sdk.Provider, o live.Options) *browser {
	t.Helper()
	agents := make([]sdk.Agent, len(specs))
	for i, spec := range specs {
		agents[i].Spec = spec
	}
	h := harness.Start(t, harness.Options{Agents: agents, Model: model})
	cfg := &config.Config{Agents: specs}
	o.Conn, o.Config, o.Logger = h.Conn(), func() *config.Config { return cfg }, slog.New(slog.NewTextHandler(t.Output(), nil))
	o.Connect = func(context.Context) (*broker.Conn, error) { return nil, sdk.Errorf(sdk.CodeUnavailable, "no server") }
	c, err := live.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if o.Index != "" { // workers find it when they start
		h.StopWorkers()
		h.Restart()
	}
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	b := &browser{t: t, h: h, url: server.URL, client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// answer is what comes back, without its body.
type answer struct {
	StatusCode int
	Header     http.Header
	Set        []*http.Cookie
}

// ask sends a request, as a form where there is one, and returns what comes back. header replaces what it names.
func (b *browser) ask(method, path string, form url.Values, header http.Header) (answer, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	response, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, response.Cookies()}, string(body)
}

func (b *browser) get(want int, path string) string {
	b.t.Helper()
	response, body := b.ask(http.MethodGet, path, nil, nil)
	if response.StatusCode != want {
		b.t.Fatalf("GET %s answers %d; want %d\n%s", path, response.StatusCode, want, body)
	}
	return body
}

// gone loads the page of a request until the console has read what closed it.
func (b *browser) gone(path string) string {
	b.t.Helper()
	for deadline := time.Now().Add(harness.DefaultPatience()); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if response, body := b.ask(http.MethodGet, path, nil, nil); response.StatusCode == http.StatusGone {
			return body
		}
	}
	b.t.Fatalf("%s stays open", path)
	return ""
}

func (b *browser) post(want int, path string, form url.Values) (location, body string) {
	b.t.Helper()
	response, body := b.ask(http.MethodPost, path, form, nil)
	if response.StatusCode != want {
		b.t.Fatalf("POST %s answers %d; want %d\n%s", path, response.StatusCode, want, body)
	}
	return response.Header.Get("Location"), body
}

func contains(t testing.TB, page string, wanted ...string) {
	t.Helper()
	if _, main, ok := strings.Cut(page, "<main"); ok {
		page, _, _ = strings.Cut(main, "</main>")
	}
	for _, text := range wanted {
		if !strings.Contains(page, text) {
			t.Errorf("%q is not on the page:\n%s", text, page)
		}
	}
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// hiddenIn are the values that a page's forms carry, the last of each name.
func hiddenIn(page string) url.Values {
	values := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(page, -1) {
		values.Set(m[1], strings.NewReplacer("&#34;", `"`, "&amp;", "&", "&lt;", "<", "&gt;", ">", "&#39;", "'", "&#43;", "+").Replace(m[2]))
	}
	return values
}

var link = regexp.MustCompile(`href="(/inbox/[^"]+)"`)

// asked waits until something else than what is gone waits for a person, and returns the address of its page.
func (b *browser) asked(gone ...string) string {
	b.t.Helper()
	for deadline := time.Now().Add(harness.DefaultPatience()); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if m := link.FindStringSubmatch(b.get(http.StatusOK, "/inbox")); m != nil && !slices.Contains(gone, m[1]) {
			return m[1]
		}
	}
	b.t.Fatal("nothing waits for a person")
	return ""
}

// ended waits until a run has.
func (b *browser) ended(run string) {
	b.t.Helper()
	r := harness.Run{Agent: "payer", Subject: run, Key: wire.NewRunKey(run)}
	b.h.Until(r, "done", func(s core.State) bool { return s.Status == core.StatusDone })
}

// published is how many messages the broker has of answers and control.
func (b *browser) published() (n uint64) {
	b.t.Helper()
	for _, zone := range []streams.Zone{streams.In, streams.Start} {
		bounds, err := b.h.Conn().Bounds(b.t.Context(), zone)
		if err != nil {
			b.t.Fatal(err)
		}
		n += bounds.Last
	}
	return n
}

// start starts a run in the browser, and returns the address of its page.
func (b *browser) start(name, message string) string {
	b.t.Helper()
	to, _ := b.post(http.StatusSeeOther, "/agents/payer/start", url.Values{"name": {name}, "key": {name}, "field.message": {message}})
	return strings.TrimSuffix(to, "?told=started")
}

// Nothing that others wrote is anything but text, on any page.
func TestPages_ShowHostileTextAsText(t *testing.T) {
	b := open(t, paying(), "anna", "")
	run := b.start("<b>run</b>/\u202e"+hostile[:10], hostile)
	if want := "/runs/%3Cb%3Erun%3C%2Fb%3E%2F%E2%80%AE%3Cscript%3Eal"; run != want {
		t.Fatalf("the run is at %s; want %s", run, want)
	}
	request := b.asked()
	b.h.PublishRaw(b.h.Conn().Subjects().Root()+".in.x.y.payer.z.c", []byte("<script>\xff\xfe\u202e"))
	pages := []string{
		"/", "/runs", "/runs?q=%22%3Cscript%3E%E2%80%AE%22", run, run + "/timeline", run + "/journal", run + "/journal/1", run + "/state", run + "/events", "/inbox",
		request, request + "/edit", "/agents", "/agents/payer", "/services", "/contracts/bank.pay", "/dead-letters", "/health",
		"/bulk?verb=tag&q=%22%3Cscript%3E%E2%80%AE%22&said=%3Cscript%3E%E2%80%AE&rate=%3Cscript%3E", b.propose("cancel", `"`+hostile[:17]+"\u202e"+`" run:*`, hostile),
		"/contracts/%3Cscript%3E", "/runs/%3Cscript%3E%E2%80%AE",
	}
	for _, path := range pages {
		response, body := b.ask(http.MethodGet, path, nil, nil)
		if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
			t.Errorf("%s answers %d", path, response.StatusCode)
		}
		if got := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'; script-src 'self';") {
			t.Errorf("%s has the policy %q", path, got)
		}
		if !utf8.ValidString(body) {
			t.Errorf("%s is not UTF-8", path)
		}
		for _, bad := range []string{"<script>", "<img", "<b>run", "href=\"https:", "\u200b", "\x1b"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q:\n%s", path, bad, body)
			}
		}
		// In addresses and in what a form gives back, characters are percent-encoded or as they were; a reader is shown neither.
		if shown := attributes.ReplaceAllString(body, ""); strings.Contains(shown, "\u202e") {
			t.Errorf("%s shows a character that cannot be seen", path)
		}
	}
	contains(t, b.get(http.StatusOK, request), `\u202e`, "&lt;script&gt;alert(1)&lt;/script&gt;", `\u200b`, "risk high", "money")
	contains(t, b.get(http.StatusOK, run), `\u202e`, "&lt;img src=https://evil.example/x&gt;")
}

// attributes are what tags say that is not shown.
var attributes = regexp.MustCompile(`(?:value|href|action|sse-connect|hx-get)="[^"]*"`)

// A text of a megabyte does not make a page of a megabyte.
func TestConversation_FoldsLongTexts(t *testing.T) {
	b := open(t, sdktest.Script(sdktest.Say(strings.Repeat("long ", 200_000))), "anna", "")
	run := b.start("long", "hello")
	b.ended("long")
	page := b.get(http.StatusOK, run)
	if len(page) > 300_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	contains(t, page, "more bytes are in the journal")
}

// What is edited keeps its types, is compared before it counts, and reaches the service as it was compared.
func TestEdit_KeepsTypesAndIsComparedBeforeItCounts(t *testing.T) {
	b := open(t, paying(), "anna", "")
	b.start("edited", "pay")
	request := b.asked()
	form := b.get(http.StatusOK, request+"/edit")
	contains(t, form, `name="field.euros" value="12"`, `<option value="true" selected>yes</option>`, `name="field.note" value="for lunch"`)
	values := url.Values{"field.euros": {"12.5"}, "field.fast": {"false"}, "field.note": {"for lunch"}, "field.to": {`"bob"`}}
	_, page := b.post(http.StatusUnprocessableEntity, request+"/edit", values)
	contains(t, page, "do not fit the tool", "$.euros", `value="12.5"`)
	values.Set("field.euros", "13")
	before := b.published()
	_, page = b.post(http.StatusOK, request+"/edit", values)
	contains(t, page, `- `+"  "+`&#34;euros&#34;: 12,`, `&#43; `+"  "+`&#34;euros&#34;: 13,`, `&#34;fast&#34;: false`)
	if after := b.published(); after != before {
		t.Errorf("comparing published %d messages", after-before)
	}
	_, page = b.post(http.StatusOK, request+"/decide", hiddenIn(page))
	contains(t, page, "Allowed", "Said as anna")
	got := b.h.Call("bank.pay").Data()
	if diff := cmp.Diff(map[string]any{"to": "bob", "euros": 13.0, "note": "for lunch", "fast": false}, got); diff != "" {
		t.Errorf("the service gets (-want +got):\n%s", diff)
	}
}

// A plan that waits for approval is read step by step, and so is what an edit changes of it.
func TestEdit_OfAPlanIsDrawnAsSteps(t *testing.T) {
	spec := payer()
	spec.Permissions, spec.Mode, spec.Plan = nil, sdk.ModePlan, &sdk.PlanSpec{Review: &sdk.PermissionPolicyTerms{}}
	model := sdktest.Script(
		sdktest.Say(`plan.add_step(step=1, tool="bank_pay", text="Pay <b>bob</b>")`),
		sdktest.Ask(sdktest.Tool("bank_pay", map[string]any{"to": "bob"})),
		sdktest.Say("paid"),
	)
	b := openFor(t, spec, model, live.Options{Who: setup.Principal{Who: "anna"}})
	run := b.start("planned", "pay")
	request := b.asked()
	contains(t, b.get(http.StatusOK, "/inbox"), "approval of a plan", "1. Pay &lt;b&gt;bob&lt;/b&gt;")
	contains(t, b.get(http.StatusOK, run), "approval of its plan", "plan, to be approved\n  [ ]  1. Pay &lt;b&gt;bob&lt;/b&gt;</pre>")
	contains(t, b.get(http.StatusOK, request), "Approval of a plan", "Exactly this plan, written by the model",
		"1. Pay &lt;b&gt;bob&lt;/b&gt;\n     with: bank_pay</pre>", "Edit the plan…")
	contains(t, b.get(http.StatusOK, request+"/edit"), "Edit the plan")
	values := url.Values{"as_json": {"1"}, "object": {`{"steps":[{"step":1,"text":"Pay alice","tool":"bank_pay"}]}`}}
	_, page := b.post(http.StatusOK, request+"/edit", values)
	contains(t, page, "- 1. Pay &lt;b&gt;bob&lt;/b&gt;", "&#43; 1. Pay alice", "with: bank_pay", "Approve this plan")
	b.post(http.StatusOK, request+"/decide", hiddenIn(page))
	b.h.Call("bank.pay").Answer("bank.paid", map[string]any{})
	b.ended("planned")
	contains(t, b.get(http.StatusOK, run), "plan, edited by whoever approved it\n  [✓]  1. Pay alice (bank_pay)</pre>",
		`<p class="label">edited to</p><pre class="said">1. Pay alice`+"\n     with: bank_pay</pre>")
}

// A pattern that cannot be read is for whoever wrote it to mend, and so is a number of uses that would be none.
func TestDecide_SaysWhatIsWrongWithAGrant(t *testing.T) {
	t.Parallel()
	spec := payer()
	spec.Permissions.Rules[0].Terms = &sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeToolPattern}}
	b := openFor(t, spec, paying(), live.Options{Who: setup.Principal{Who: "anna"}})
	b.start("patterned", "pay")
	request := b.asked()
	page := b.get(http.StatusOK, request)
	contains(t, page, "<option>run&#43;tool&#43;pattern</option>", "(for run+tool+pattern, such as")
	form := hiddenIn(page)
	form.Set("decision", "allow")
	form.Set("scope", "run+tool+pattern")
	form.Set("pattern", "args.euros <")
	_, page = b.post(http.StatusUnprocessableEntity, request+"/decide", form)
	contains(t, page, "Syntax error")
	form.Set("pattern", "args.euros < 100")
	for _, uses := range []string{"0", "-1", "some"} {
		form.Set("uses", uses)
		_, page = b.post(http.StatusUnprocessableEntity, request+"/decide", form)
		contains(t, page, "&#34;"+uses+"&#34; is not a number of uses; write one of at least 1, or leave it out")
	}
}

// A decision is on the arguments that were shown; the model is told why it was denied.
func TestDecide_IsOnWhatWasShown(t *testing.T) {
	b := open(t, paying(), "anna", "")
	run := b.start("denied", "pay")
	request := b.asked()
	form := hiddenIn(b.get(http.StatusOK, request))
	for deadline := time.Now().Add(harness.DefaultPatience()); ; <-time.After(5 * time.Millisecond) {
		if page := b.get(http.StatusOK, request); strings.Contains(page, "<dt>Seen by</dt><dd>anna</dd>") || time.Now().After(deadline) {
			contains(t, page, "<dt>Seen by</dt><dd>anna</dd>")
			break
		}
	}
	before := b.published()
	b.post(http.StatusUnprocessableEntity, request+"/decide", url.Values{"decision": {"allow"}})
	b.post(http.StatusConflict, request+"/decide", url.Values{"decision": {"allow"}, "args_sha256": {strings.Repeat("0", 64)}})
	if after := b.published(); after != before {
		t.Errorf("decisions on other arguments published %d messages", after-before)
	}
	form.Set("decision", "deny")
	form.Set("reason", "not this one")
	_, page := b.post(http.StatusOK, request+"/decide", form)
	contains(t, page, "Denied", "The run goes on")
	contains(t, b.get(http.StatusOK, run), "denied: not this one (anna)")
	question := b.asked(request)
	b.post(http.StatusNotFound, request+"/decide", form)
	contains(t, b.gone(request), "It is not open: it was decided", `<a href="`+run+`">`, "<strong>anna</strong>: deny: not this one (counts)")
	contains(t, b.get(http.StatusGone, "/api/v1"+request), `"closed":"It is not open: it was decided`, `"who":"anna"`, `"reason":"not this one"`)
	contains(t, b.get(http.StatusOK, question), "&lt;script&gt;", "Your answer")
	_, page = b.post(http.StatusOK, question+"/answer", url.Values{"text": {"yes"}})
	contains(t, page, "Answered")
	contains(t, b.gone(question), "It is not open: it was answered by somebody", "<strong>anna</strong>: answered")
	b.ended("denied")
	contains(t, b.get(http.StatusOK, run), "payer.done", "✓")
}

func TestSteer_PausesResumesSendsAndCancels(t *testing.T) {
	b := open(t, paying(), "anna", "")
	run := b.start("steered", "pay")
	b.asked()
	for _, step := range []struct{ verb, told, page string }{
		{"pause", "paused", "The run is paused."},
		{"resume", "resumed", "The run goes on."},
		{"send", "sent", "The run has the message."},
		{"cancel", "cancelled", "The run was asked to end."},
	} {
		to, _ := b.post(http.StatusSeeOther, run+"/"+step.verb, url.Values{"message": {"hurry"}, "reason": {"no time"}})
		if to != run+"?told="+step.told {
			t.Fatalf("%s leads to %s", step.verb, to)
		}
		contains(t, b.get(http.StatusOK, to), step.page)
	}
	b.ended("steered")
	contains(t, b.get(http.StatusOK, run), "done: cancelled", "no time")
	b.post(http.StatusNotFound, run+"/explode", nil)
}

func TestStart_SaysWhatTheAgentDoesNotTake(t *testing.T) {
	b := open(t, paying(), "anna", "")
	_, page := b.post(http.StatusUnprocessableEntity, "/agents/payer/start", url.Values{"as_json": {"1"}, "object": {`{"message":5}`}})
	contains(t, page, "$.message: expected string, got number 5")
	_, page = b.post(http.StatusUnprocessableEntity, "/agents/payer/start", url.Values{"as_json": {"1"}, "object": {`[`}})
	contains(t, page, "not a JSON object")
	b.post(http.StatusNotFound, "/agents/nobody/start", nil)
	// What has a default may be left out.
	b.post(http.StatusSeeOther, "/agents/payer/start", url.Values{"as_json": {"1"}, "object": {`{}`}, "name": {"short"}, "key": {"short"}})
	// The same form sent twice is one run.
	if first, second := b.start("once", "pay"), b.start("once", "pay"); first != second {
		t.Errorf("sent twice: %s and %s", first, second)
	}
}

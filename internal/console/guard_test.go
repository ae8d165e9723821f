package console_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
)

// An error is never a page without results.
func TestErrors_AreNotEmptyPages(t *testing.T) {
	b := open(t, paying(), "anna", "")
	contains(t, b.get(http.StatusOK, "/runs"), "There are no runs yet")
	contains(t, b.get(http.StatusOK, "/runs?q=run:nothing"), "No run matches")
	page := b.get(http.StatusUnprocessableEntity, "/runs?q=colour:red")
	contains(t, page, "nothing was looked up", "colour")
	if strings.Contains(page, "No run matches") {
		t.Error("a filter that cannot be read is shown as one without results")
	}
	contains(t, b.get(http.StatusNotFound, "/runs/nothing"), "does not exist")
	contains(t, b.get(http.StatusNotFound, "/inbox/nothing"), "nothing")
	contains(t, b.get(http.StatusNotFound, "/nothing"), "does not exist")
	b.get(http.StatusNotFound, "/runs/nothing/journal/7")
	b.get(http.StatusUnprocessableEntity, "/dead-letters/7")
}

func TestErrors_WithoutAWorkerRunsAreNotMissing(t *testing.T) {
	b := open(t, paying(), "anna", "")
	b.h.StopWorkers()
	page := b.get(http.StatusServiceUnavailable, "/runs")
	if strings.Contains(page, "There are no runs yet") {
		t.Error("runs that nobody tells of are shown as none")
	}
}

func TestGuard_RefusesForeignPagesAndHosts(t *testing.T) {
	b := open(t, paying(), "anna", "")
	b.start("guarded", "pay")
	request := b.asked()
	form := hiddenIn(b.get(http.StatusOK, request))
	form.Set("decision", "allow")
	before := b.published()
	own := strings.TrimPrefix(b.url, "http://")
	for header, want := range map[[2]string]int{
		{"Origin", "https://evil.example"}: http.StatusForbidden, {"Origin", "null"}: http.StatusForbidden,
		{"Origin", "http://127.0.0.1:1"}: http.StatusForbidden, {"Sec-Fetch-Site", "cross-site"}: http.StatusForbidden,
		{"Sec-Fetch-Site", "same-site"}: http.StatusForbidden, {"Host", "evil.example"}: http.StatusForbidden,
	} {
		response, _ := b.ask(http.MethodPost, request+"/decide", form, http.Header{header[0]: {header[1]}})
		if response.StatusCode != want {
			t.Errorf("%v is answered with %d; want %d", header, response.StatusCode, want)
		}
	}
	if response, _ := b.ask(http.MethodGet, request, nil, http.Header{"Host": {"evil.example"}}); response.StatusCode != http.StatusForbidden {
		t.Errorf("another host name is answered with %d", response.StatusCode)
	}
	if after := b.published(); after != before {
		t.Errorf("what was refused published %d messages", after-before)
	}
	response, _ := b.ask(http.MethodPost, request+"/decide", form, http.Header{"Origin": {"http://" + own}, "Sec-Fetch-Site": {"same-origin"}})
	if response.StatusCode != http.StatusOK {
		t.Errorf("the console's own page is answered with %d", response.StatusCode)
	}
}

// Who has no name acts on nothing.
func TestReadOnly_PublishesNothing(t *testing.T) {
	b := open(t, paying(), "", "")
	r := b.h.Run("payer", map[string]string{"message": "pay"})
	request := b.asked()
	contains(t, b.get(http.StatusOK, request), "read-only")
	before := b.published()
	form := hiddenIn(b.get(http.StatusOK, request))
	form.Set("decision", "allow")
	form.Set("args_sha256", strings.Repeat("0", 64))
	for _, path := range []string{
		request + "/decide", request + "/edit", request + "/answer", "/agents/payer/start", "/runs/" + r.Subject + "/cancel", "/runs/" + r.Subject + "/send",
		"/dead-letters/1/redrive", "/dead-letters/1/drop", "/bulk", "/bulk/x/begin",
	} {
		b.post(http.StatusForbidden, path, form)
	}
	for _, path := range []string{"/bulk", "/bulk/x", "/live/bulk/x"} {
		b.get(http.StatusForbidden, path)
	}
	if strings.Contains(b.get(http.StatusOK, "/runs"), "/bulk") {
		t.Error("a read-only console offers to do something with many runs")
	}
	if after := b.published(); after != before {
		t.Errorf("a read-only console published %d messages", after-before)
	}
}

func TestToken_IsNeededForEverything(t *testing.T) {
	b := open(t, paying(), "anna", "secret")
	r := b.h.Run("payer", map[string]string{"message": "pay"})
	before := b.published()
	for _, path := range []string{"/", "/runs", "/inbox", "/runs/" + r.Subject, "/health"} {
		response, _ := b.ask(http.MethodGet, path, nil, nil)
		if to := response.Header.Get("Location"); response.StatusCode != http.StatusSeeOther || to != "/login?to="+url.QueryEscape(path) {
			t.Errorf("GET %s answers %d and leads to %q", path, response.StatusCode, to)
		}
	}
	b.get(http.StatusForbidden, "/live/runs")
	b.post(http.StatusForbidden, "/runs/"+r.Subject+"/cancel", nil)
	b.post(http.StatusForbidden, "/login", url.Values{"token": {"secret2"}})
	for _, value := range []string{"", "9999999999.", "9999999999.AAAA"} {
		b.cookies = []*http.Cookie{{Name: "__Host-agentd", Value: value}}
		b.post(http.StatusForbidden, "/runs/"+r.Subject+"/cancel", nil)
	}
	b.cookies = nil
	// Over the network, the token is not to be sent in the clear.
	response, page := b.ask(http.MethodPost, "/login", url.Values{"token": {"secret"}}, http.Header{"Host": {"console.example"}})
	if response.StatusCode != http.StatusForbidden || len(response.Set) > 0 {
		t.Errorf("a token in the clear is answered with %d and %v", response.StatusCode, response.Set)
	}
	contains(t, page, "without encryption")
	if after := b.published(); after != before {
		t.Errorf("what was refused published %d messages", after-before)
	}
	for to, want := range map[string]string{"/inbox?x=1": "/inbox?x=1", "//evil.example": "/", "https://evil.example": "/", "/\\evil.example": "/", "": "/"} {
		response, _ = b.ask(http.MethodPost, "/login", url.Values{"token": {"secret\n"}, "to": {to}}, nil)
		if got := response.Header.Get("Location"); response.StatusCode != http.StatusSeeOther || got != want {
			t.Errorf("a login for %q answers %d and leads to %q", to, response.StatusCode, got)
		}
	}
	set := response.Set[0]
	if set.Name != "__Host-agentd" || !set.HttpOnly || !set.Secure || set.SameSite != http.SameSiteLaxMode || set.Path != "/" || set.MaxAge != 8*60*60 {
		t.Errorf("the cookie is %v", set)
	}
	b.cookies = []*http.Cookie{set}
	if page := b.get(http.StatusOK, "/"); !strings.Contains(page, "Log out") {
		t.Error("who has logged in cannot log out")
	}
	// Who has logged in opens a page of another site, which asks the console for something in that name.
	for header, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
		if response, _ := b.ask(http.MethodPost, "/runs/"+r.Subject+"/cancel", nil, http.Header{header: {value}}); response.StatusCode != http.StatusForbidden {
			t.Errorf("a page of another site is answered with %d", response.StatusCode)
		}
	}
	if after := b.published(); after != before {
		t.Errorf("a page of another site published %d messages", after-before)
	}
	// Another console's cookie is nobody's here.
	b.cookies = []*http.Cookie{{Name: set.Name, Value: set.Value[:len(set.Value)-1] + "x"}}
	b.post(http.StatusForbidden, "/runs/"+r.Subject+"/cancel", nil)
}

// What is vendored is what was published.
func TestStatic_IsWhatWasPublished(t *testing.T) {
	for name, want := range map[string]string{
		"htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717", // htmx.org 2.0.11, dist/htmx.min.js
		"sse.min.js":  "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136", // htmx-ext-sse 2.2.4, dist/sse.min.js
	} {
		data, err := os.ReadFile("static/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has the SHA-256 %x; want %s", name, sum, want)
		}
	}
}

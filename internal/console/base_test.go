package console_test

import (
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentd/internal/console"
	"agentd/internal/console/live"
	"agentd/internal/setup"
)

// named are the addresses of this host that a page names, wherever a browser or htmx reads one.
var named = regexp.MustCompile(`\b(href|src|action|sse-connect|hx-get|hx-post)="([^"]*)"`)

// Under a path, nothing that a page leads to is anywhere else: links, forms, scripts, what it follows, redirects and cookies.
func TestBase_EverythingIsUnderIt(t *testing.T) {
	const base = "/ops/agentd"
	b := openWith(t, asking, live.Options{Who: setup.Principal{Who: "anna"}, Base: base})
	b.url += base // so that the helpers ask under it
	to, _ := b.post(http.StatusSeeOther, "/agents/payer/start", url.Values{"name": {"r"}, "key": {"r"}, "field.message": {"pay"}})
	if to != base+"/runs/r?told=started" {
		t.Errorf("a run that was started is at %s", to)
	}
	b.h.PublishRaw(b.h.Conn().Subjects().Root()+".in.x.y.payer.z.c", []byte("no event"))
	b.url = strings.TrimSuffix(b.url, base)
	seen := map[string]bool{}
	kinds := map[string]int{}
	for queue := []string{base + "/", base + "/runs/r/state?at=1", base + "/bulk", base + "/nothing"}; len(queue) > 0; queue = queue[1:] {
		page := queue[0]
		if seen[page] || len(seen) > 120 {
			continue
		}
		seen[page] = true
		response, body := b.ask(http.MethodGet, page, nil, nil)
		if response.StatusCode != http.StatusOK && page != base+"/nothing" {
			t.Errorf("%s answers %d", page, response.StatusCode)
		}
		at, err := url.Parse(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(body, -1) {
			kinds[m[1]]++
			to, err := at.Parse(html.UnescapeString(m[2]))
			if err != nil {
				t.Fatal(err)
			}
			if to.Host != "" || !strings.HasPrefix(to.Path, base+"/") {
				t.Errorf("%s leads to %s (%s)", page, to, m[0])
			}
			to.Fragment = ""
			// What is followed does not end, and forms are only sent.
			if m[1] == "href" && !strings.Contains(page, "/static/") {
				queue = append(queue, to.String())
			}
		}
	}
	for _, part := range []string{"/runs/r", "/runs/r/journal/1", "/runs/r/timeline", "/inbox/", "/agents/payer", "/contracts/", "/dead-letters/1", "/health", "/static/console.css", "/runs?sort=tokens"} {
		if !slices.ContainsFunc(keysOf(seen), func(s string) bool { return strings.HasPrefix(s, base+part) }) {
			t.Errorf("no page leads to %s; the walk shows nothing of it: %q", part, keysOf(seen))
		}
	}
	if kinds["action"] == 0 || kinds["sse-connect"] == 0 || kinds["hx-get"] == 0 || kinds["src"] == 0 {
		t.Errorf("some kind of address was never seen: %v", kinds)
	}
	b.get(http.StatusOK, base+"/api/v1/runs")
	for _, outside := range []string{"/", "/runs", "/api/v1/runs", base + "x/runs", "/static/console.css"} {
		b.get(http.StatusNotFound, outside)
	}
	for path, want := range map[string]string{base: base + "/", base + "//runs": base + "/runs"} {
		if response, _ := b.ask(http.MethodGet, path, nil, nil); response.Header.Get("Location") != want {
			t.Errorf("%s answers %d and leads to %q; want %q", path, response.StatusCode, response.Header.Get("Location"), want)
		}
	}
	b.streams(base + "/live/runs?q=run:r&since=0")
}

// streams asks for what changes, and waits until some of it came.
func (b *browser) streams(path string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	first := make([]byte, 7)
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "event: " {
		b.t.Errorf("%s begins with %q: %v", path, first, err)
	}
}

func keysOf(m map[string]bool) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// A login leads back to where somebody wanted to go, and counts under the path alone.
func TestBase_LoginsAreKeptThere(t *testing.T) {
	const base = "/ops"
	b := openWith(t, paying(), live.Options{Who: setup.Principal{Who: "anna"}, Token: "secret", Base: base})
	response, _ := b.ask(http.MethodGet, base+"/inbox?x=1", nil, nil)
	if got, want := response.Header.Get("Location"), base+"/login?to=%2Finbox%3Fx%3D1"; got != want {
		t.Fatalf("who has not logged in is led to %q; want %q", got, want)
	}
	if page := b.get(http.StatusOK, base+"/login?to=%2Finbox%3Fx%3D1"); !strings.Contains(page, `action="`+base+`/login"`) {
		t.Errorf("the form of the login is not sent under the path:\n%s", page)
	}
	response, _ = b.ask(http.MethodPost, base+"/login", url.Values{"token": {"secret"}, "to": {"/inbox?x=1"}}, nil)
	if got := response.Header.Get("Location"); got != base+"/inbox?x=1" || len(response.Set) != 1 {
		t.Fatalf("a login leads to %q with the cookies %v", got, response.Set)
	}
	set := response.Set[0]
	if set.Name != "__Secure-agentd" || set.Path != base+"/" || !set.HttpOnly || !set.Secure || set.SameSite != http.SameSiteLaxMode {
		t.Errorf("the cookie is %v", set)
	}
	b.cookies = []*http.Cookie{set}
	b.get(http.StatusOK, base+"/inbox")
	response, _ = b.ask(http.MethodPost, base+"/logout", nil, nil)
	if got := response.Header.Get("Location"); got != base+"/login" || len(response.Set) != 1 || response.Set[0].MaxAge >= 0 || response.Set[0].Path != base+"/" {
		t.Errorf("logging out leads to %q with the cookies %v", got, response.Set)
	}
}

func TestCheckBase(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"": "", "/": "", "/x": "/x", "/x/": "/x", "/ops/agentd-1.2/": "/ops/agentd-1.2"} {
		if got, err := console.CheckBase(path); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"x", "//x", "/x//y", "/..", "/x/../y", "/x y", `/x"`, "/x?y", "/x#y", "/%2e", "https://x", "//"} {
		if got, err := console.CheckBase(path); err == nil {
			t.Errorf("%q is taken as %q", path, got)
		}
	}
}

package login

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/config"
	"agentd/sdk"
	"agentd/test/identity"
)

func provider(t *testing.T, idp *identity.Provider) *Provider {
	t.Helper()
	p := New(config.OIDC{
		Issuer: idp.Issuer(), ClientID: identity.Client, URL: "http://console/", Scopes: []string{"profile"}, Principal: "preferred_username", Groups: "realm.roles",
		Roles: []config.ConsoleRole{
			{Group: "staff", Role: config.ConsoleViewer},
			{Group: "ops", Role: config.ConsoleOperator},
			{Group: "desk", Role: config.ConsoleApprover},
			{Group: "money", Role: config.ConsoleApprover, Domains: []string{"payments", "human.interaction"}},
		},
	}, "")
	t.Cleanup(p.Close)
	return p
}

// said are claims of somebody, with others in place of some.
func said(name any, groups any, others ...any) map[string]any {
	claims := map[string]any{"preferred_username": name, "realm": map[string]any{"roles": groups}}
	for i := 0; i+1 < len(others); i += 2 {
		claims[others[i].(string)] = others[i+1]
	}
	return claims
}

// Groups say what somebody may do, and who is in none of those that are listed may do nothing.
func TestPerson_IsWhatTheGroupsSay(t *testing.T) {
	t.Parallel()
	idp := identity.Start(t)
	p := provider(t, idp)
	for _, c := range []struct {
		groups any
		want   Person
	}{
		{[]string{"staff"}, Person{Who: "anna"}},
		{"staff", Person{Who: "anna"}},
		{[]any{7, "others", "ops"}, Person{Who: "anna", Operator: true}},
		{[]string{"desk"}, Person{Who: "anna", Domains: []string{"human.interaction"}}},
		{[]string{"desk", "money", "ops"}, Person{Who: "anna", Operator: true, Domains: []string{"human.interaction", "payments"}}},
	} {
		got, err := p.Person(t.Context(), idp.Token(said("anna", c.groups)))
		if err != nil {
			t.Errorf("%v: %v", c.groups, err)
		}
		got.Until = time.Time{}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.groups, diff)
		}
	}
}

// What somebody else signed, or said of another, or too long ago, is nobody's.
func TestPerson_RefusesWhatIsNoProof(t *testing.T) {
	t.Parallel()
	idp, other := identity.Start(t), identity.Start(t)
	p := provider(t, idp)
	good := said("anna", []string{"ops"})
	if _, err := p.Person(t.Context(), idp.Token(good)); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signed := strings.Split(idp.Token(good), ".")
	for what, proof := range map[string]string{
		"nothing":            "",
		"no signature":       "eyJhbGciOiJub25lIn0." + signed[1] + ".",
		"another's body":     signed[0] + "." + strings.Split(idp.Token(said("eve", []string{"ops"})), ".")[1] + "." + signed[2],
		"another key":        idp.Forged(good),
		"another provider":   other.Token(good),
		"another issuer":     idp.Token(said("anna", []string{"ops"}, "iss", other.Issuer())),
		"another client":     idp.Token(said("anna", []string{"ops"}, "aud", "shop")),
		"too old":            idp.Token(said("anna", []string{"ops"}, "iat", now.Add(-Life-time.Second).Unix())),
		"of the future":      idp.Token(said("anna", []string{"ops"}, "iat", now.Add(2*skew).Unix())),
		"no group":           idp.Token(said("anna", nil)),
		"other groups":       idp.Token(said("anna", []string{"Ops", "ops2"})),
		"groups elsewhere":   idp.Token(map[string]any{"preferred_username": "anna", "groups": []string{"ops"}, "realm": "ops"}),
		"no name":            idp.Token(said(nil, []string{"ops"})),
		"an empty name":      idp.Token(said("", []string{"ops"})),
		"no text for a name": idp.Token(said([]string{"anna"}, []string{"ops"})),
		"a wildcard":         idp.Token(said("*", []string{"ops"})),
		"two tokens":         idp.Token(said("anna.bob", []string{"ops"})),
	} {
		if who, err := p.Person(t.Context(), proof); !errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
			t.Errorf("%s is taken for %+v: %v", what, who, err)
		}
	}
}

// Whoever reaches a server that asks for proofs may show any number that nobody has signed: the provider is asked for its keys once in a
// second, and who shows a good one is let in all the same.
func TestPerson_AsksForKeysNoMoreThanOnceInASecond(t *testing.T) {
	t.Parallel()
	idp := identity.Start(t)
	p := provider(t, idp)
	now := time.Now()
	p.now = func() time.Time { return now }
	good := said("anna", []string{"ops"})
	forged := idp.Forged(good)
	for second := range 3 {
		for range 10 {
			if who, err := p.Person(t.Context(), forged); !errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
				t.Fatalf("a forged proof is taken for %+v: %v", who, err)
			}
		}
		if _, err := p.Person(t.Context(), idp.Token(good)); err != nil {
			t.Error(err)
		}
		if n := idp.Asked(); n != second+1 {
			t.Errorf("in %d s the provider was asked for its keys %d times", second+1, n)
		}
		now = now.Add(keysPause)
	}
}

// led logs in at the provider, and returns what it sends back.
func led(t *testing.T, address string) url.Values {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	to, err := response.Location()
	if err != nil {
		t.Fatal(err)
	}
	if got := to.Scheme + "://" + to.Host + to.Path; got != "http://console/login/callback" {
		t.Errorf("the provider leads back to %s", got)
	}
	return to.Query()
}

// A login ends in the browser in which it began, once, soon, and with the nonce that it began with.
func TestFinish_EndsItsOwnLoginAlone(t *testing.T) {
	t.Parallel()
	idp := identity.Start(t)
	p := provider(t, idp)
	idp.Says(said("anna", []string{"ops"}))
	begin := func() (Pending, url.Values) {
		t.Helper()
		address, pending, err := p.Begin(t.Context(), "/runs")
		if err != nil {
			t.Fatal(err)
		}
		return pending, led(t, address)
	}
	pending, back := begin()
	proof, who, err := p.Finish(t.Context(), pending, back.Get("state"), back.Get("code"))
	if err != nil || who.Who != "anna" || proof == "" || pending.To != "/runs" {
		t.Fatalf("%+v, %+v: %v", who, pending, err)
	}
	_, other := begin()
	for what, change := range map[string]func(*Pending, url.Values){
		"a second time": func(p *Pending, v url.Values) {
			*p = pending
			v.Set("state", pending.State)
			v.Set("code", back.Get("code"))
		},
		"another's state":      func(_ *Pending, v url.Values) { v.Set("state", other.Get("state")) },
		"no state":             func(p *Pending, v url.Values) { p.State = ""; v.Del("state") },
		"no code":              func(_ *Pending, v url.Values) { v.Del("code") },
		"another's code":       func(_ *Pending, v url.Values) { v.Set("code", other.Get("code")) },
		"another verifier":     func(p *Pending, _ url.Values) { p.Verifier += "x" },
		"another nonce":        func(p *Pending, _ url.Values) { p.Nonce += "x" },
		"after eleven minutes": func(p *Pending, _ url.Values) { p.Until = time.Now().Add(-time.Second) },
	} {
		pending, back := begin()
		change(&pending, back)
		if _, who, err := p.Finish(t.Context(), pending, back.Get("state"), back.Get("code")); !errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
			t.Errorf("%s logs in %+v: %v", what, who, err)
		}
	}
	idp.Says(said("anna", []string{"ops"}, "nonce", ""))
	pending, back = begin()
	if _, _, err := p.Finish(t.Context(), pending, back.Get("state"), back.Get("code")); err == nil {
		t.Error("a word without a nonce logs in")
	}
}

// Nobody who answers in the provider's place fills the console's memory, or leads it elsewhere.
func TestBegin_ReadsNoMoreThanAProviderSays(t *testing.T) {
	t.Parallel()
	elsewhere := identity.Start(t)
	large, _ := json.Marshal(map[string]string{"padding": strings.Repeat("x", 1<<20)})
	for what, answer := range map[string]http.HandlerFunc{
		"the response is larger than 1048576 bytes": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) },
		"307 Temporary Redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.Issuer()+r.URL.Path, http.StatusTemporaryRedirect)
		},
	} {
		server := httptest.NewServer(answer)
		p := New(config.OIDC{Issuer: server.URL, ClientID: "agentd", URL: "http://console"}, "")
		if _, _, err := p.Begin(t.Context(), "/"); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want %q", err, what)
		}
		p.Close()
		server.Close()
	}
}

// A provider that hangs is asked once for all who wait, and keeps nobody who has left.
func TestBegin_WaitsNoLongerThanWhoAsks(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 2), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-release
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	p := New(config.OIDC{Issuer: server.URL, ClientID: "agentd", URL: "http://console"}, "")
	defer p.Close()
	first := make(chan error, 1)
	go func() {
		_, _, err := p.Begin(t.Context(), "/")
		first <- err
	}()
	<-asked
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, _, err := p.Begin(left, "/"); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) || !errors.Is(err, context.Canceled) {
		t.Errorf("who has left is told %v", err)
	}
	close(release)
	if err := <-first; !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) || len(asked) > 0 {
		t.Errorf("who waits is told %v, after %d further questions", err, len(asked))
	}
}

// A provider that is away is said to be, and asked again later.
func TestBegin_SaysThatTheProviderIsAway(t *testing.T) {
	t.Parallel()
	p := New(config.OIDC{Issuer: "http://127.0.0.1:1", ClientID: "agentd", URL: "http://console"}, "")
	t.Cleanup(p.Close)
	if _, _, err := p.Begin(t.Context(), "/"); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		t.Errorf("%v", err)
	}
}

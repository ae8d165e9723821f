// Package identity is an identity provider (OpenID Connect) for tests: everybody who comes is let in, as whom the test says.
package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// Client is what the provider calls the console.
const Client = "agentd"

// Provider is an identity provider. It gives a code once, to who asked for it with the hash of what they show later (PKCE).
type Provider struct {
	t      testing.TB
	url    string
	key    *rsa.PrivateKey
	server *httptest.Server

	mu sync.Mutex
	// claims are of who logs in next, and codes what was promised.
	claims map[string]any
	codes  map[string]promise
	// asked is how often it was asked for its keys.
	asked int
}

type promise struct {
	claims                        map[string]any
	nonce, challenge, redirectURI string
}

// Start starts a provider, until the test ends.
func Start(t testing.TB) *Provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{t: t, key: key, codes: map[string]promise{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discover)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p.url, p.server = server.URL, server
	return p
}

// Issuer is the provider's address.
func (p *Provider) Issuer() string { return p.url }

// Close ends it before the test does.
func (p *Provider) Close() { p.server.Close() }

// Asked is how often it was asked for its keys.
func (p *Provider) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// LogsIn says whom it lets in from now on: a name, and groups.
func (p *Provider) LogsIn(name string, groups ...string) {
	p.Says(map[string]any{"preferred_username": name, "groups": groups})
}

// Says is LogsIn with any claims. They replace what it would say.
func (p *Provider) Says(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = claims
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // a client that is gone needs none
}

func (p *Provider) discover(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{
		"issuer": p.url, "authorization_endpoint": p.url + "/authorize", "token_endpoint": p.url + "/token", "jwks_uri": p.url + "/keys",
		"id_token_signing_alg_values_supported": []string{"RS256"},
	})
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	p.asked++
	p.mu.Unlock()
	answer(w, map[string]any{"keys": []map[string]string{{
		"kty": "RSA", "kid": "k", "alg": "RS256", "use": "sig", "n": encode(p.key.N.Bytes()), "e": encode(big.NewInt(int64(p.key.E)).Bytes()),
	}}})
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != Client || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		q.Get("state") == "" || q.Get("nonce") == "" || !strings.Contains(q.Get("scope"), "openid") {
		p.t.Errorf("the console asks for a login with %s", r.URL.RawQuery)
	}
	code := rand.Text()
	p.mu.Lock()
	p.codes[code] = promise{p.claims, q.Get("nonce"), q.Get("code_challenge"), q.Get("redirect_uri")}
	p.mu.Unlock()
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	given, ok := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	p.mu.Unlock()
	verifier := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || encode(verifier[:]) != given.challenge || r.PostFormValue("redirect_uri") != given.redirectURI {
		w.WriteHeader(http.StatusBadRequest)
		answer(w, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"nonce": given.nonce}
	maps.Copy(claims, given.claims)
	answer(w, map[string]any{"access_token": "unused", "token_type": "Bearer", "id_token": p.Token(claims)})
}

// Token is an ID token with these claims, which replace the usual ones.
func (p *Provider) Token(claims map[string]any) string {
	p.t.Helper()
	return p.sign(p.key, claims)
}

// Forged is Token by somebody else's key.
func (p *Provider) Forged(claims map[string]any) string {
	p.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.sign(key, claims)
}

func (p *Provider) sign(key *rsa.PrivateKey, claims map[string]any) string {
	now := time.Now()
	all := map[string]any{
		"iss": p.url, "aud": Client, "sub": "1", "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
	}
	maps.Copy(all, claims)
	body, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	text := encode([]byte(`{"alg":"RS256","kid":"k"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		p.t.Fatal(err)
	}
	return text + "." + encode(signature)
}

// Browser is somebody's browser: it keeps cookies and follows redirects, to the provider too.
type Browser struct {
	t testing.TB
	// Base is the address of the console.
	Base   string
	client *http.Client
}

// Browse opens a browser on a console.
func Browse(t testing.TB, base string) *Browser {
	t.Helper()
	b := &Browser{t: t, Base: base, client: &http.Client{Transport: &http.Transport{}}}
	b.client.Jar = newJar(t)
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// Get opens a page, and follows redirects.
func (b *Browser) Get(path string) (status int, page string) {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil)
}

// Post sends a form.
func (b *Browser) Post(path string, form url.Values) (status int, page string) {
	b.t.Helper()
	return b.do(http.MethodPost, path, form)
}

// LogIn logs in, and returns the page that this leads to.
func (b *Browser) LogIn() (status int, page string) {
	b.t.Helper()
	return b.Get("/login/begin")
}

// Cookies are those that it has for the console.
func (b *Browser) Cookies() []*http.Cookie {
	return b.client.Jar.Cookies(&url.URL{Scheme: "https", Host: strings.TrimPrefix(b.Base, "http://"), Path: "/"})
}

func (b *Browser) do(method, path string, form url.Values) (int, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.Base+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // nothing was written to it
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// jar takes this machine for a secure place, as browsers do.
type jar struct{ http.CookieJar }

func newJar(t testing.TB) http.CookieJar {
	t.Helper()
	kept, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return jar{kept}
}

func secure(u *url.URL) *url.URL {
	other := *u
	other.Scheme = "https"
	return &other
}

func (j jar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	j.CookieJar.SetCookies(secure(u), cookies)
}

func (j jar) Cookies(u *url.URL) []*http.Cookie { return j.CookieJar.Cookies(secure(u)) }

// Package login is how people log in to a console at an identity provider (OpenID Connect: a code with PKCE and a nonce), and what the
// proof of such a login, the provider's ID token, says of them. A console and the program that a NATS server asks (package callout) look
// at the proof each on their own.
package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"agentd/internal/config"
	"agentd/internal/httplimit"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// Life is how long a login counts. The expiry of the ID token, which is about reading it, is often a few minutes.
	Life = 8 * time.Hour
	// skew is how far the provider's clock may be ahead.
	skew = time.Minute
	// answering bounds each request to the provider.
	answering = 10 * time.Second
	// maxAnswer bounds each answer of the provider, in bytes.
	maxAnswer = 1 << 20
	// keysPause is how long the provider is not asked for its keys after it was: whoever can connect to a NATS server that asks who somebody
	// is may show it any number of proofs with unknown keys.
	keysPause = time.Second
	// callback is the path that the provider leads browsers back to.
	callback = "/login/callback"
)

// Person is who has logged in, and what they may do. Everybody may look at everything.
type Person struct {
	// Who is the principal.
	Who string
	// Operator says that they may start and steer runs, and Domains are those that they decide and answer in.
	Operator bool
	Domains  []string
	// Until is when the login ends.
	Until time.Time
}

// Provider is an identity provider.
type Provider struct {
	o      config.OIDC
	secret string
	now    func() time.Time
	client *http.Client

	// asking has those who wait for the provider share one question. found is nil until it has answered.
	asking singleflight.Group
	found  atomic.Pointer[found]

	mu sync.Mutex
	// keysAsked is when it was asked for its keys last.
	keysAsked time.Time
}

// found is what the provider says of itself.
type found struct {
	oauth    oauth2.Config
	verifier *oidc.IDTokenVerifier
	// keys is the address of its keys.
	keys string
}

// New returns a provider, which need not be there yet. secret is the client's; a public client has none.
func New(o config.OIDC, secret string) *Provider {
	o.URL = strings.TrimSuffix(o.URL, "/")
	p := &Provider{o: o, secret: secret, now: time.Now}
	p.client = &http.Client{
		Timeout: answering,
		Transport: &httplimit.Transport{Base: sparing{p}, Limits: func(*http.Request) httplimit.Limits {
			return httplimit.Limits{Total: maxAnswer}
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would carry the secret to a host that nobody has configured
	}
	return p
}

// sparing is the default transport, which asks the provider for its keys once in keysPause.
type sparing struct{ p *Provider }

// RoundTrip implements http.RoundTripper.
func (s sparing) RoundTrip(r *http.Request) (*http.Response, error) {
	if f := s.p.found.Load(); f != nil && r.Method == http.MethodGet && r.URL.String() == f.keys && !s.p.mayAskForKeys() {
		return nil, errors.New("the identity provider was asked for its keys a moment ago")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// CloseIdleConnections is what http.Client calls of its transport.
func (sparing) CloseIdleConnections() { http.DefaultClient.CloseIdleConnections() }

func (p *Provider) mayAskForKeys() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if now.Sub(p.keysAsked) < keysPause {
		return false
	}
	p.keysAsked = now
	return true
}

// Issuer is the provider's address.
func (p *Provider) Issuer() string { return p.o.Issuer }

// Close lets go of connections.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// with is ctx with the client that asks the provider.
func (p *Provider) with(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, p.client)
}

// find is what the provider says of itself, for which it is asked until it has answered once. Nobody waits for longer than ctx.
func (p *Provider) find(ctx context.Context) (*found, error) {
	if f := p.found.Load(); f != nil {
		return f, nil
	}
	// Keys are fetched later, too: what was found must not end with a request.
	asked := context.WithoutCancel(ctx)
	answer := p.asking.DoChan("", func() (any, error) { return p.ask(asked) })
	var err error
	select {
	case a := <-answer:
		if f, ok := a.Val.(*found); ok && a.Err == nil {
			return f, nil
		}
		err = a.Err
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, sdk.Errorf(sdk.CodeUnavailable, "the identity provider %s does not answer as one; try again, or look at console.oidc.issuer", p.o.Issuer).WithCause(err)
}

// ask asks the provider for its addresses and keys.
func (p *Provider) ask(ctx context.Context) (*found, error) {
	provider, err := oidc.NewProvider(p.with(ctx), p.o.Issuer)
	if err != nil {
		return nil, err
	}
	var says struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&says); err != nil {
		return nil, err
	}
	f := &found{
		keys: says.Keys,
		oauth: oauth2.Config{
			ClientID: p.o.ClientID, ClientSecret: p.secret, Endpoint: provider.Endpoint(), RedirectURL: p.o.URL + callback,
			Scopes: append([]string{oidc.ScopeOpenID}, p.o.Scopes...),
		},
		// How old a login may be is Person's to say, so the expiry of the token is not looked at.
		verifier: provider.Verifier(&oidc.Config{ClientID: p.o.ClientID, SkipExpiryCheck: true, Now: p.now}),
	}
	p.found.Store(f)
	return f, nil
}

// Pending is a login that has begun: what a browser must bring back. It is a secret between it and the console.
type Pending struct {
	State, Nonce, Verifier string
	// To is the page that somebody wanted to see.
	To string
	// Until is when it must have ended.
	Until time.Time
}

// pendingLife is how long somebody may take to log in.
const pendingLife = 10 * time.Minute

// Begin begins a login: address is where the browser goes.
func (p *Provider) Begin(ctx context.Context, to string) (address string, pending Pending, err error) {
	f, err := p.find(ctx)
	if err != nil {
		return "", Pending{}, err
	}
	pending = Pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: to, Until: p.now().Add(pendingLife)}
	return f.oauth.AuthCodeURL(pending.State, oidc.Nonce(pending.Nonce), oauth2.S256ChallengeOption(pending.Verifier)), pending, nil
}

func refused(format string, args ...any) *sdk.Error {
	return sdk.Errorf(sdk.CodePermissionDenied, format, args...)
}

// Finish ends a login with what the provider sent back: the proof of it, and whom it is of.
func (p *Provider) Finish(ctx context.Context, pending Pending, state, code string) (proof string, who Person, err error) {
	switch {
	case pending.State == "" || subtle.ConstantTimeCompare([]byte(state), []byte(pending.State)) != 1:
		return "", who, refused("this login was not begun in this browser; log in again")
	case p.now().After(pending.Until):
		return "", who, refused("this login took too long; log in again")
	case code == "":
		return "", who, refused("the identity provider did not let you in")
	}
	f, err := p.find(ctx)
	if err != nil {
		return "", who, err
	}
	token, err := f.oauth.Exchange(p.with(ctx), code, oauth2.VerifierOption(pending.Verifier))
	if err != nil {
		return "", who, refused("the identity provider refuses this login; log in again").WithCause(withoutBody(err))
	}
	proof, ok := token.Extra("id_token").(string)
	if !ok {
		return "", who, refused("the identity provider says nobody's name: it sends no ID token")
	}
	given, err := f.verifier.Verify(p.with(ctx), proof)
	if err != nil {
		return "", who, refused("the identity provider's word cannot be trusted").WithCause(err)
	}
	if subtle.ConstantTimeCompare([]byte(given.Nonce), []byte(pending.Nonce)) != 1 {
		return "", who, refused("the identity provider's word is of another login; log in again")
	}
	who, err = p.read(given)
	return proof, who, err
}

// withoutBody is err without what the provider answered, which may hold secrets.
func withoutBody(err error) error {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return fmt.Errorf("%s %s", e.Response.Status, e.ErrorCode)
	}
	return err
}

// Person is whom a proof is of. The error is sdk.CodePermissionDenied where it does not count, or no longer.
func (p *Provider) Person(ctx context.Context, proof string) (Person, error) {
	f, err := p.find(ctx)
	if err != nil {
		return Person{}, err
	}
	token, err := f.verifier.Verify(p.with(ctx), proof)
	if err != nil {
		return Person{}, refused("the proof of the login cannot be trusted").WithCause(err)
	}
	return p.read(token)
}

func (p *Provider) read(token *oidc.IDToken) (Person, error) {
	who := Person{Until: token.IssuedAt.Add(Life)}
	if now := p.now(); token.IssuedAt.After(now.Add(skew)) || !now.Before(who.Until) {
		return Person{}, refused("this login is over; log in again")
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return Person{}, refused("the identity provider's word cannot be read").WithCause(err)
	}
	who.Who, _ = claim(claims, p.o.Principal).(string)
	if err := wire.CheckPrincipal(who.Who); err != nil || who.Who == "" {
		return Person{}, refused("the identity provider names you %q in %q, which cannot name a principal: want 1 to 128 letters, digits, _ and -", who.Who, p.o.Principal)
	}
	groups := texts(claim(claims, p.o.Groups))
	held := 0
	for _, r := range p.o.Roles {
		if !slices.Contains(groups, r.Group) {
			continue
		}
		held++
		switch r.Role {
		case config.ConsoleOperator:
			who.Operator = true
		case config.ConsoleApprover:
			domains := r.Domains
			if len(domains) == 0 {
				domains = []string{sdk.HumanDomain}
			}
			who.Domains = append(who.Domains, domains...)
		}
	}
	if held == 0 {
		return Person{}, refused("%s is in none of the groups that may use this console", who.Who)
	}
	slices.Sort(who.Domains)
	who.Domains = slices.Compact(who.Domains)
	return who, nil
}

// claim is the value of a claim: by its whole name, else the dots in it lead into objects.
func claim(claims map[string]any, name string) any {
	if value, ok := claims[name]; ok {
		return value
	}
	first, rest, deeper := strings.Cut(name, ".")
	object, ok := claims[first].(map[string]any)
	if !deeper || !ok {
		return nil
	}
	return claim(object, rest)
}

// texts are a text, or those in a list.
func texts(value any) []string {
	if one, ok := value.(string); ok {
		return []string{one}
	}
	list, _ := value.([]any)
	var found []string
	for _, v := range list {
		if text, ok := v.(string); ok {
			found = append(found, text)
		}
	}
	return found
}

package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentd/internal/desk"
	"agentd/internal/httpguard"
	"agentd/sdk"
	"agentd/sdk/client"
)

// Person is who uses a console, and what they may do there. Everybody may look at everything.
type Person struct {
	// Who is the principal of what they do; empty is nobody. As says it, and how it is known, to people.
	Who, As string
	// Operator says that they may start and steer runs, and Domains are those in which they may decide and answer; "*" is all.
	Operator bool
	Domains  []string
	// Until is when their login ends; zero is never.
	Until time.Time
}

// Decides reports whether they may decide and answer in a domain.
func (p *Person) Decides(domain string) bool {
	return slices.Contains(p.Domains, domain) || slices.Contains(p.Domains, "*")
}

// Logins are how people log in at an identity provider. What they return for browsers to keep is sealed: a browser can neither read nor
// change it.
type Logins interface {
	// At names the provider.
	At() string
	// Begin begins a login that leads to a page of the console: address is where the browser goes, and pending what it brings back.
	Begin(ctx context.Context, to string) (address, pending string, err error)
	// Finish ends it with what the provider sent, and returns what shows from now on who somebody is.
	Finish(ctx context.Context, pending, state, code string) (session, to string, err error)
	// Person is who has a session. The error is sdk.CodePermissionDenied where it does not count, or no longer.
	Person(ctx context.Context, session string) (Person, error)
	// Desk is a desk over a connection that the broker knows as that of who has the session, which done closes.
	Desk(ctx context.Context, session string) (d *desk.Desk, done func(), err error)
	// Runs starts and steers runs as a principal.
	Runs(who string) *client.Client
}

// user is who sent a request: in says that they may look at the console.
type user struct {
	Person
	in      bool
	session string
}

type userKey struct{}

func userOf(r *http.Request) user {
	u, _ := r.Context().Value(userKey{}).(user)
	return u
}

// on is the request of the user. It ends with the login.
func (u user) on(r *http.Request) (own *http.Request, done func()) {
	ctx, done := context.WithValue(r.Context(), userKey{}, u), func() {}
	if !u.Until.IsZero() {
		ctx, done = context.WithDeadline(ctx, u.Until)
	}
	return r.WithContext(ctx), done
}

// closed reports whether people have to log in.
func (c *console) closed() bool { return c.Token != "" || c.Logins != nil }

// recognize finds out who sends a request. Without a login that counts it is nobody, and no error.
func (c *console) recognize(r *http.Request) (user, error) {
	if c.Logins == nil {
		u := user{Person: Person{Who: c.Who, As: c.As, Operator: c.Who != ""}, in: c.Token == "" || c.session.admits(c.cookies(r, cookie))}
		if c.Who != "" {
			u.Domains = []string{"*"}
		}
		var err error
		if !u.in && forPrograms(r) && protected(r) { // nobody on the way reads the token
			u.in, err = c.guesses.Bears(r, c.Token)
		}
		return u, err
	}
	session := c.cookies(r, cookie)
	if session == "" {
		return user{}, nil
	}
	p, err := c.Logins.Person(r.Context(), session)
	if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		return user{}, nil
	}
	return user{p, err == nil, session}, err
}

// The addresses of a login at an identity provider.
const (
	beginPath    = "/login/begin"
	callbackPath = "/login/callback"
	// pendingCookie is what a browser brings back from there, within pendingLife.
	pendingCookie = "agentd-login"
	pendingLife   = 10 * time.Minute
	// longestReturn is the longest address, in bytes, of a page that a login leads back to.
	longestReturn = 4 << 10
)

// beginLogin leads to the identity provider.
func (c *console) beginLogin(w http.ResponseWriter, r *http.Request) {
	to := own(r.URL.Query().Get("to"))
	if len(to) > longestReturn {
		to = "/"
	}
	address, pending, err := c.Logins.Begin(r.Context(), to)
	if err != nil {
		c.Logger.Warn("nobody can log in", "error", err)
		c.askToLogIn(w, r, http.StatusServiceUnavailable, to, sdk.AsError(err).Message)
		return
	}
	c.setCookies(w, r, pendingCookie, pending, pendingLife)
	http.Redirect(w, r, address, http.StatusSeeOther) //nolint:gosec // it is the identity provider of the configuration
}

// finishLogin is where the identity provider leads back to.
func (c *console) finishLogin(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	pending := c.cookies(r, pendingCookie)
	c.setCookies(w, r, pendingCookie, "", 0)
	session, to, err := c.Logins.Finish(r.Context(), pending, q.Get("state"), q.Get("code"))
	if err == nil && len(session) > cookiesMost*cookieSize {
		err = sdk.Errorf(sdk.CodeTooLarge, "what the identity provider says of you is too large to be kept in the browser: %d bytes, and %d may be; have it send fewer groups, such as those of console.oidc.roles alone",
			len(session), cookiesMost*cookieSize)
	}
	if err != nil {
		c.Logger.Warn("a login is refused", "error", err)
		e := sdk.AsError(err)
		c.askToLogIn(w, r, httpguard.Status(e.Code), "/", e.Message)
		return
	}
	c.setCookies(w, r, cookie, session, sessionLife)
	http.Redirect(w, r, own(to), http.StatusSeeOther) //nolint:gosec // it is a path of this console
}

// Browsers keep 4,096 bytes of a cookie, and what an identity provider says of somebody may be more: a text is kept in several, the first
// with the name alone. Together they must leave room for the rest of a request's header, of which package httpguard takes 16 KiB: who sends
// more gets no page at all, not even that to log in.
const (
	cookieSize  = 3000
	cookiesMost = 4
)

func (c *console) piece(name string, i int) string {
	name = cookiePrefix(c.Base) + name
	if i == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(i)
}

// cookies is the text that setCookies set.
func (c *console) cookies(r *http.Request, name string) string {
	var b strings.Builder
	for i := range cookiesMost {
		kept, err := r.Cookie(c.piece(name, i))
		if err != nil {
			break
		}
		b.WriteString(kept.Value)
	}
	return b.String()
}

// setCookies has the browser keep a text of at most cookiesMost*cookieSize bytes for a while, and forget what it kept before of the same name; an empty text is none.
func (c *console) setCookies(w http.ResponseWriter, r *http.Request, name, value string, life time.Duration) {
	for i := range cookiesMost {
		text := value[:min(len(value), cookieSize)]
		value = value[len(text):]
		kept := &http.Cookie{
			Name: c.piece(name, i), Value: text, Path: c.Base + "/", MaxAge: int(life.Seconds()), HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode,
		}
		if text == "" {
			if _, err := r.Cookie(kept.Name); err != nil {
				break
			}
			kept.MaxAge = -1
		}
		http.SetCookie(w, kept)
	}
}

// acting lets those act on runs who may.
func (c *console) acting(p page) page {
	return c.allowed(p, func(u *user) error {
		if u.Operator {
			return nil
		}
		return c.mayNot(u, "start or steer runs", "the role operator")
	})
}

// deciding lets those decide who may in some domain; in which one is looked at with the request that it is about.
func (c *console) deciding(p page) page {
	return c.allowed(p, func(u *user) error {
		if len(u.Domains) > 0 {
			return nil
		}
		return c.mayNot(u, "decide or answer", "the role approver")
	})
}

func (c *console) allowed(p page, check func(*user) error) page {
	return func(r *request) (*view, error) {
		if err := check(&r.user); err != nil {
			return nil, err
		}
		if err := r.ParseForm(); err != nil {
			return nil, err
		}
		return p(r)
	}
}

func (c *console) mayNot(u *user, what, role string) error {
	if c.Logins == nil {
		return sdk.Errorf(sdk.CodePermissionDenied, "this console is read-only; start it with --as NAME to act as somebody")
	}
	return sdk.Errorf(sdk.CodePermissionDenied, "%s may look at everything here, and not %s: that needs a group with %s (console.oidc.roles)", u.Who, what, role)
}

// desk is where the user decides on something of a domain, which done lets go of.
func (r *request) desk(domain string) (d *desk.Desk, done func(), err error) {
	switch {
	case r.c.Logins == nil:
		return r.c.Desk, func() {}, nil
	case !r.user.Decides(domain):
		return nil, nil, r.c.mayNot(&r.user, "decide or answer in the domain "+domain, "the role approver of it")
	}
	return r.c.Logins.Desk(r.Context(), r.user.session)
}

// runs starts and steers runs as the user.
func (r *request) runs() *client.Client {
	if r.c.Logins == nil {
		return r.c.Runs
	}
	return r.c.Logins.Runs(r.user.Who)
}

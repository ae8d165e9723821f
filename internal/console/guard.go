package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"agentd/internal/httpguard"
	"agentd/sdk"
)

// policy lets a page have nothing but the console's own scripts, styles and pictures, and lets nobody frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

//go:embed static
var files embed.FS

// static are scripts and styles. Their addresses have a digest of their content, so that a browser keeps them.
func static() http.Handler {
	handler := http.FileServerFS(mustSub(files, "static"))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		handler.ServeHTTP(w, r)
	})
}

// guard lets nobody in who must not be: where nobody logs in, hosts and pages that are not of this machine; else who has not logged
// in. What changes something must come from a page of this console.
func (c *console) guard(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	refuse := func(w http.ResponseWriter, r *http.Request, message string) {
		c.fail(w, c.asking(w, r), sdk.Errorf(sdk.CodePermissionDenied, "%s", message))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		who, err := c.recognize(r)
		r, done := who.on(r)
		defer done()
		switch {
		case !c.closed() && !httpguard.Local(r.Host):
			refuse(w, r, "this host name is not served; open the console by its address on this machine")
		case !c.closed() && httpguard.Foreign(r), foreign.Check(r) != nil:
			refuse(w, r, "pages of other sites cannot open or use the console; type its address yourself")
		case err != nil && !open(r.URL.Path):
			c.fail(w, c.asking(w, r), err)
		case !who.in && !open(r.URL.Path):
			if forPrograms(r) {
				h.Set("WWW-Authenticate", "Bearer")
				c.problem(w, http.StatusUnauthorized, sdk.Errorf(sdk.CodePermissionDenied, "log in, or send the token of this console as Authorization: Bearer"))
				return
			}
			if r.Method != http.MethodGet || strings.HasPrefix(r.URL.Path, "/live/") {
				refuse(w, r, "log in first")
				return
			}
			http.Redirect(w, r, "/login?"+url.Values{"to": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// open is what is needed to log in.
func open(path string) bool {
	return path == "/login" || path == beginPath || path == callbackPath || strings.HasPrefix(path, "/static/")
}

// session is who has logged in: a cookie with the time until which it counts, and a code that only this console's token makes. A new
// token ends all sessions. Nothing is kept.
type session struct {
	key []byte
	now func() time.Time
}

const (
	// cookie is the name of that of who has logged in, after what cookiePrefix returns.
	cookie = "agentd"
	// sessionLife is how long a login counts.
	sessionLife = 8 * time.Hour
)

func newSession(token string) session {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("agentd console session"))
	return session{key: mac.Sum(nil), now: time.Now}
}

func (s session) code(until string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(until))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// admits reports whether what a browser kept is of a login that still counts.
func (s session) admits(given string) bool {
	until, code, _ := strings.Cut(given, ".")
	seconds, err := strconv.ParseInt(until, 10, 64)
	return err == nil && hmac.Equal([]byte(code), []byte(s.code(until))) && s.now().Unix() < seconds
}

// begun is what the browser of somebody who logs in for a while keeps.
func (s session) begun(life time.Duration) string {
	until := strconv.FormatInt(s.now().Add(life).Unix(), 10)
	return until + "." + s.code(until)
}

// loginPage is where people log in. At is the identity provider where they do; empty is here, with the token.
type loginPage struct{ To, Problem, At, Begin string }

func (c *console) login(w http.ResponseWriter, r *http.Request) {
	if userOf(r).in {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	c.askToLogIn(w, r, http.StatusOK, r.URL.Query().Get("to"), "")
}

// askToLogIn sends the page on which people log in, with what was wrong with the last attempt.
func (c *console) askToLogIn(w http.ResponseWriter, r *http.Request, status int, to, problem string) {
	p := loginPage{To: to, Problem: problem}
	if c.Logins != nil {
		p.At, p.Begin = c.Logins.At(), beginPath+"?"+url.Values{"to": {to}}.Encode()
	}
	c.send(w, c.asking(w, r), status, &view{Title: "Log in", Template: "login", Data: p})
}

// own is an address of this console, or its first page when it is another site's.
func own(to string) string {
	if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		return "/"
	}
	return to
}

func (c *console) logIn(w http.ResponseWriter, r *http.Request) {
	to := r.PostFormValue("to")
	if !protected(r) {
		c.askToLogIn(w, r, http.StatusForbidden, to,
			"This page came without encryption, so others could read the token. Serve the console behind TLS, or open it through a tunnel to this machine.")
		return
	}
	switch right, err := c.guesses.Right(r, strings.TrimSpace(r.PostFormValue("token")), c.Token); {
	case err != nil:
		e := sdk.AsError(err)
		c.askToLogIn(w, r, httpguard.Status(e.Code), to, e.Message)
		return
	case !right:
		c.askToLogIn(w, r, http.StatusForbidden, to, "This is not the token of this console.")
		return
	}
	c.setCookies(w, r, cookie, c.session.begun(sessionLife), sessionLife)
	http.Redirect(w, r, own(to), http.StatusSeeOther) //nolint:gosec // it is a path of this console
}

func (c *console) logOut(w http.ResponseWriter, r *http.Request) {
	c.setCookies(w, r, cookie, "", 0)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// protected reports whether nobody on the way reads what is sent: by TLS here or at a proxy, or because it stays on the machine.
func protected(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" || httpguard.Local(r.Host)
}

// Package console is the pages in which people look at runs, and decide and steer them, in a browser (docs/console.md).
//
// Pages are made on the server, of html/template, and all of them work without JavaScript: with it, htmx puts rows and lines in
// their places as runs change. State is in the URL only. What agents, models and strangers wrote is text: it is escaped, characters
// that cannot be seen are written out (package show), and nothing of it becomes a link, an image or markup.
//
// What the console does, it does as one principal, Options.Who, through the same clients as the command line; without one it is
// read-only. Where people log in at an identity provider, Options.Logins, it does that as each of them, and decides over a connection
// that the broker knows as theirs.
package console

import (
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"agentd/internal/desk"
	"agentd/internal/httpguard"
	"agentd/internal/index"
	"agentd/sdk"
	"agentd/sdk/client"
)

// Options are what a console is made of. All but Who, Base, Token and Logins are needed.
type Options struct {
	// Source is what is read beside the workers' answers, and Runs asks workers and steers runs, as Who.
	Source Source
	Runs   *client.Client
	// Index says which runs there are. It is a hint: pages of a run read its journal.
	Index index.Index
	// Lacking says which runs the index cannot have; empty is that it has all.
	Lacking func() string
	// Desk is what people are asked.
	Desk *desk.Desk
	// Jobs do one thing with many runs.
	Jobs Jobs
	// Agents are those of the configuration, as it is now.
	Agents func() []sdk.AgentSpec
	// Who is the principal of everything that is done here, and As says it, and how it is known, to people. Without Who the console is
	// read-only.
	Who, As string
	// Base is the path that everything here is under, such as "/agentd"; empty is none. CheckBase checks it.
	Base string
	// Token is what people log in with. Empty lets everybody in, which httpguard.Listen refuses on any address but loopback.
	Token string
	// Logins, unless nil, are how people log in, each as themselves, in place of Who and Token.
	Logins Logins
	Logger *slog.Logger
}

type console struct {
	Options
	session session
	guesses *httpguard.Guesses
	// pages are the templates by their names, which are parsed when the first page is asked for.
	pages func() map[string]*template.Template
	hub   *hub
	now   func() time.Time
}

// maxBody is the largest form in bytes: arguments that are edited may be as large as a message.
const maxBody = 2 << 20

// Handler is the console. Its events end when the requests' contexts do.
func Handler(o Options) http.Handler {
	pages := sync.OnceValue(func() map[string]*template.Template { return parse(o.Base) })
	c := &console{Options: o, session: newSession(o.Token), guesses: httpguard.NewGuesses(o.Logger), pages: pages, hub: &hub{}, now: time.Now}
	mux := http.NewServeMux()
	mux.Handle("GET /static/", http.StripPrefix("/static/", static()))
	mux.HandleFunc("GET /login", c.login)
	if o.Logins == nil {
		mux.HandleFunc("POST /login", c.logIn)
	} else {
		mux.HandleFunc("GET "+beginPath, c.beginLogin)
		mux.HandleFunc("GET "+callbackPath, c.finishLogin)
	}
	mux.HandleFunc("POST /logout", c.logOut)
	for pattern, page := range map[string]page{
		"GET /{$}": c.overview, "GET /runs": c.runs, "GET /runs/{run}": c.conversation, "GET /runs/{run}/timeline": c.timeline,
		"GET /runs/{run}/journal": c.journal, "GET /runs/{run}/journal/{rev}": c.entry, "GET /runs/{run}/state": c.state,
		"GET /runs/{run}/events": c.events,
		"GET /inbox":             c.inbox, "GET /inbox/{id}": c.request,
		"GET /dead-letters": c.letters, "GET /dead-letters/{seq}": c.letter,
		"GET /agents": c.agents, "GET /agents/{agent}": c.agent, "GET /services": c.services, "GET /contracts/{type}": c.contract,
		"GET /health": c.health,
		// Reading jobs makes the place where they are kept.
		"GET /bulk": c.acting(c.bulk), "GET /bulk/{job}": c.acting(c.job),
	} {
		mux.Handle(pattern, c.page(page))
		mux.Handle(strings.Replace(pattern, "/", programs+"/", 1), c.data(page))
	}
	mux.Handle("GET /inbox/{id}/edit", c.page(c.edit))
	for pattern, action := range map[string]page{
		"POST /inbox/{id}/edit": c.compare, "POST /inbox/{id}/decide": c.decide, "POST /inbox/{id}/answer": c.answer,
	} {
		mux.Handle(pattern, c.page(c.deciding(action)))
	}
	for pattern, action := range map[string]page{
		"POST /agents/{agent}/start": c.start, "POST /agents/{agent}/pause": c.hold, "POST /agents/{agent}/resume": c.release,
		"POST /runs/{run}/{verb}":         c.steer,
		"POST /dead-letters/{seq}/{verb}": c.settle,
		"POST /bulk":                      c.propose, "POST /bulk/{job}/{verb}": c.direct,
	} {
		mux.Handle(pattern, c.page(c.acting(action)))
	}
	mux.HandleFunc("GET /live/broker", c.liveBroker)
	mux.HandleFunc("GET /live/inbox/{id}", c.liveRequest)
	mux.HandleFunc("GET /live/bulk/{job}", c.liveJob)
	mux.HandleFunc("GET /live/runs", c.liveRuns)
	mux.HandleFunc("GET /live/runs/{run}", c.liveRun)
	mux.Handle("/", c.page(func(*request) (*view, error) { return nil, notFound("this page does not exist; begin at the overview") }))
	return under(o.Base, c.guard(mux))
}

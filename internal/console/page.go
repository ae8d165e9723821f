package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"agentd/internal/httpguard"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A page is what a request is answered with, or why it cannot be.
type page func(*request) (*view, error)

// request is one request, and who is told what.
type request struct {
	*http.Request
	c *console
	w http.ResponseWriter
	// user is who asks.
	user user
}

// view is a page before it is written.
type view struct {
	Title string
	// Template is the name of the file without its ending, Data what it shows.
	Template string
	Data     any
	// Status is 200 when it is 0. To is a page to go to instead.
	Status int
	To     string
	// Place is the entry of the menu that the page belongs to.
	Place string
}

// The entries of the menu, whose pages have the templates of the same names.
const (
	placeOverview = "overview"
	placeRuns     = "runs"
	placeInbox    = "inbox"
	placeLetters  = "letters"
	placeAgents   = "agents"
	placeServices = "services"
	placeHealth   = "health"
)

// layout is what every page has around it.
type layout struct {
	*view
	// Who acts, and As says how that is known; ReadOnly says that they may not do anything with runs, and Decides that they may decide all
	// the same. LoggedIn says that there is a login to end.
	Who, As  string
	ReadOnly bool
	Decides  bool
	LoggedIn bool
	// Broker says how the broker is.
	Broker presence
	// Told is what the action before this page came to.
	Told string
}

//go:embed templates
var sources embed.FS

func mustSub(files fs.FS, folder string) fs.FS {
	sub, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // the folder is in the binary
	}
	return sub
}

// parse makes a template for each page, with the layout around it. base is before every address that a page names; addresses elsewhere
// in this package are without it.
func parse(base string) map[string]*template.Template {
	parsed := map[string]*template.Template{}
	own := template.FuncMap{"base": func() string { return base }}
	shared := template.Must(template.New("layout.html").Funcs(functions).Funcs(own).ParseFS(sources, "templates/layout.html", "templates/parts.html"))
	names, err := fs.Glob(sources, "templates/*.html")
	if err != nil {
		panic(err) // the pattern is constant
	}
	for _, file := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		parsed[name] = template.Must(template.Must(shared.Clone()).ParseFS(sources, file))
	}
	return parsed
}

// functions are what templates may do with what they are given. Everything that others wrote goes through text or line.
var functions = template.FuncMap{
	fieldText:  func(s any) string { return show.VisibleLines(textOf(s)) },
	"line":     func(s any) string { return show.Line(textOf(s), lineLength) },
	"short":    func(s any) string { return show.Line(textOf(s), shortLength) },
	"escape":   func(s any) string { return url.PathEscape(textOf(s)) },
	"at":       moment,
	"now":      func() int64 { return time.Now().UnixMilli() },
	"duration": func(ms int64) string { return spelled(time.Duration(ms) * time.Millisecond) },
	"count":    show.Count,
	"size":     size,
	"asset":    asset,
	"fold":     fold,
	"dict":     dict,
}

// textOf is the text of a value whose type is one.
func textOf(v any) string {
	switch s := v.(type) {
	case string:
		return s
	case interface{ String() string }:
		return s.String()
	}
	return strings.TrimSpace(template.HTMLEscaper(v)) // other types of text: escaped twice rather than not at all
}

const (
	lineLength  = 160
	shortLength = 48
)

// dict makes the arguments of a part: names and values by turns.
func dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1] // templates are constant
	}
	return m
}

// folded is a text of which the beginning is shown. Rest is what is shown on demand, and Left how many bytes are not on the page.
type folded struct {
	Start, Rest string
	Left        int
}

// How much of a text is shown at once, and on demand: the journal has the rest. Where a page has no room left, it shows the beginnings of
// texts. Entries that are shown as a whole have a bound as well, and texts in a list have little room.
const (
	foldAfter = 2 << 10
	foldMost  = 16 << 10
	foldLeast = 256
	foldLine  = 512
	wholeMost = 96 << 10
)

// folder folds texts until their page has no room left.
type folder struct{ used int }

func (f *folder) fold(text string) folded {
	start, rest := foldAfter, foldMost
	if left := roomShown - f.used; left < start+rest {
		start, rest = max(min(start, left), foldLeast), max(left-start, 0)
	}
	folded := foldAt(text, start, rest)
	f.used += written(folded.Start) + written(folded.Rest)
	return folded
}

// written is how many bytes of a page a text takes, about: quotes, which JSON has many of, are written as &#34;.
func written(text string) int { return len(text) + 4*strings.Count(text, `"`) }

// foldAt shows so many bytes at the beginning, and so many after them on demand.
func foldAt(text string, start, rest int) folded {
	begin, more := cut(text, start)
	more, left := cut(more, rest)
	return folded{show.VisibleLines(begin), show.VisibleLines(more), len(left)}
}

// fold shows the beginning of a text that stands in a line.
func fold(v any) folded { return foldAt(textOf(v), foldLine, 0) }

// whole shows all of a text, or as much as a page has room for.
func whole(text string) folded { return foldAt(text, wholeMost, 0) }

// cut splits a text after at most n bytes, and not inside a character.
func cut(s string, n int) (start, rest string) {
	if len(s) <= n {
		return s, ""
	}
	at := n
	for at > n-utf8.UTFMax && !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at], s[at:]
}

// instant is a time for people and for programs.
type instant struct{ ISO, UTC, Ago string }

// moment is a time in Unix milliseconds; nil for none.
func moment(ms int64) *instant {
	if ms == 0 {
		return nil
	}
	t := time.UnixMilli(ms).UTC()
	ago := show.Ago(ms)
	if time.Until(t) > time.Second {
		ago = "in " + show.Until(ms)
	}
	return &instant{t.Format("2006-01-02T15:04:05.000Z07:00"), t.Format("2006-01-02 15:04:05") + " UTC", ago}
}

// size is a number of bytes with the precision that says something.
func size(n uint64) string {
	units := []string{"bytes", "KB", "MB", "GB", "TB"}
	amount, unit := float64(n), 0
	for ; amount >= 1000 && unit < len(units)-1; unit++ {
		amount /= 1000
	}
	return strconv.FormatFloat(amount, 'f', min(unit, 1), 64) + " " + units[unit]
}

// spelled is a duration with the precision that says something.
func spelled(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return show.Duration(d)
}

// asset is the address of a script or style.
func asset(name string) (string, error) {
	data, err := files.ReadFile("static/" + name)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return "/static/" + name + "?" + hex.EncodeToString(sum[:6]), nil
}

func (c *console) asking(w http.ResponseWriter, r *http.Request) *request {
	return &request{r, c, w, userOf(r)}
}

// pageTimeout bounds what a page waits for: workers that do not answer.
const pageTimeout = 20 * time.Second

// page answers with a page, or with an error that is one.
func (c *console) page(p page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := context.WithTimeout(r.Context(), pageTimeout)
		defer stop()
		q := c.asking(w, r.WithContext(ctx))
		v, err := p(q)
		switch {
		case err != nil:
			c.fail(w, q, err)
		case v.To != "":
			http.Redirect(w, r, v.To, http.StatusSeeOther)
		default:
			c.send(w, q, cmp.Or(v.Status, http.StatusOK), v)
		}
	})
}

// send writes a page: whole, or not at all.
func (c *console) send(w http.ResponseWriter, r *request, status int, v *view) {
	l := layout{
		view: v, Who: r.user.Who, As: r.user.As, ReadOnly: !r.user.Operator, Decides: len(r.user.Domains) > 0,
		LoggedIn: c.closed() && r.user.in, Broker: c.broker(""),
		Told: told[r.URL.Query().Get("told")],
	}
	var b bytes.Buffer
	if err := c.pages()[v.Template].ExecuteTemplate(&b, "layout.html", l); err != nil {
		c.Logger.Error("the page could not be made", "page", v.Template, "error", err)
		http.Error(w, "The page could not be made; the log of the console says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if _, err := b.WriteTo(w); err != nil {
		c.Logger.Debug("the page could not be sent", "error", err)
	}
}

// errorPage says what is wrong, and what was asked for.
type errorPage struct {
	Code    sdk.Code
	Message string
	Faults  []sdk.Fault
	Missing bool
}

// fail answers with a page that says what is wrong. It is never a page without results.
func (c *console) fail(w http.ResponseWriter, r *request, err error) {
	e := sdk.AsError(err)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		e = sdk.Errorf(sdk.CodeTooLarge, "the form has more than %d bytes", maxBody)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		e = sdk.Errorf(sdk.CodeUnavailable, "the answer did not come within %s; look whether the broker and workers are there, and try again", pageTimeout)
	}
	if !c.Source.Connected() {
		e = sdk.Errorf(sdk.CodeUnavailable, "the broker is not there, and this page needs it")
	}
	status := httpguard.Status(e.Code)
	if forPrograms(r.Request) {
		if status == http.StatusInternalServerError {
			c.Logger.Error("what a page shows could not be told", "path", r.URL.Path, "error", err)
		}
		c.problem(w, status, e)
		return
	}
	data := errorPage{e.Code, show.Problem(e), e.Faults, status == http.StatusNotFound}
	if len(e.Faults) > 0 {
		data.Message = e.Message
	}
	if status == http.StatusInternalServerError {
		c.Logger.Error("the page could not be made", "path", r.URL.Path, "error", err)
	}
	title := cmp.Or(http.StatusText(status), "Error")
	if e.Code == sdk.CodeCorrupt {
		title = "This run cannot be read"
	}
	c.send(w, r, status, &view{Title: title, Template: "error", Data: data})
}

// notFound is the error of what does not exist.
func notFound(message string) error { return sdk.Errorf(sdk.CodeUnknownRun, "%s", message) }

// toldPaused is also how a run is that waits for its agent.
const toldPaused = string(wire.ParkPaused)

// told are what pages say of an action that led to them. Only these texts can be named in an address.
var told = map[string]string{
	"sent": "The run has the message.", "sent-later": "The message is stored. The run gets it when a worker has handled it; if it is refused, it becomes a dead letter.",
	toldPaused: "The run is paused.", "resumed": "The run goes on.", "retried": "The run goes on from where it ended.",
	"unparked": "The run is being tried again.", "cancelled": "The run was asked to end.", "started": "The run is started.",
	"later": "The request is stored. No worker has handled it yet.", "redriven": "The message was published again, and its dead letter removed.",
	"dropped":      "The dead letter was deleted.",
	"agent-paused": "The agent is paused: none of its runs begins.", "agent-resumed": "The agent goes on.",
}

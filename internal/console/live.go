package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentd/internal/core"
	"agentd/internal/httpguard"
	"agentd/internal/index"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

const (
	// keepAlive is how often something is sent when nothing happens, so that both ends notice a dead connection.
	keepAlive = 15 * time.Second
	// sendTimeout is how long one piece may take to be sent.
	sendTimeout = 10 * time.Second
	// pace is the shortest time between two pieces: rows that change more often are sent as they are by then.
	pace = 250 * time.Millisecond
	// maxStreams is how many pages follow what happens at once; further ones ask what happened, once in pollPause.
	maxStreams = 200
	pollPause  = 10 * time.Second
	// maxShown is the most rows that one page follows.
	maxShown = index.DefaultLimit
	// maxOthers is how many other runs a page counts that are new or have changed; where there are more it says so.
	maxOthers = 1000
)

// hub counts the streams.
type hub struct {
	mu   sync.Mutex
	open int
}

// enter reports whether there may be one more stream; leave ends it.
func (h *hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == maxStreams {
		return false
	}
	h.open++
	return true
}

func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
}

// stream sends server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	// once says that there are too many streams for this one to stay open: it ends with what has happened by now, and the browser, which
	// is told so, comes again after pollPause.
	once bool
	hub  *hub
}

// stream begins one, which the caller ends.
func (c *console) stream(w http.ResponseWriter) *stream {
	s := &stream{w: w, control: http.NewResponseController(w), once: !c.hub.enter(), hub: c.hub}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return s
}

// begin says how the page follows from now on: those that ask from time to time say so.
func (c *console) begin(s *stream) error {
	pause := time.Duration(0)
	if s.once {
		pause = pollPause
		if _, err := fmt.Fprintf(s.w, "retry: %d\n\n", pause.Milliseconds()); err != nil {
			return err
		}
	}
	data, err := c.part("polled", pause.Milliseconds())
	if err != nil {
		return err
	}
	return s.send("polled", "", data)
}

// end makes room for another one.
func (s *stream) end() {
	if !s.once {
		s.hub.leave()
	}
}

// send sends an event; one without a name is a comment. Line feeds are of HTML, where they are blanks or stand in their own lines.
func (s *stream) send(name, id string, data []byte) error {
	var b bytes.Buffer
	if name == "" {
		b.WriteString(": still here\n")
	} else {
		fmt.Fprintf(&b, "event: %s\n", name)
		if id != "" {
			fmt.Fprintf(&b, "id: %s\n", id)
		}
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			fmt.Fprintf(&b, "data: %s\n", bytes.TrimSuffix(line, []byte("\r")))
		}
	}
	b.WriteByte('\n')
	if err := s.control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, err := b.WriteTo(s.w); err != nil {
		return err
	}
	return s.control.Flush()
}

// part makes a part of a page.
func (c *console) part(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := c.pages()[placeRuns].ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

// liveRuns sends the rows of a page that change, and how many other runs that the filter selects have changed since.
func (c *console) liveRuns(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	filter, err := index.ParseFilter(values.Get("q"))
	if err != nil {
		http.Error(w, sdk.AsError(err).Message, http.StatusUnprocessableEntity)
		return
	}
	since, err := strconv.ParseInt(values.Get("since"), 10, 64)
	if err != nil {
		since = math.MaxInt64 // what changed before is not asked for
	}
	shown := values["run"]
	shown = shown[:min(len(shown), maxShown)]
	s := c.stream(w)
	defer s.end()
	f := followed{c: c, s: s, filter: filter, sort: index.SortBy(values.Get("sort")), since: since, shown: shown, others: map[string]bool{}, changed: map[string]index.Document{}}
	if err := f.run(r.Context()); err != nil && r.Context().Err() == nil {
		c.Logger.Debug("rows could not be sent", "error", err)
	}
}

// followed is a list that somebody looks at.
type followed struct {
	c      *console
	s      *stream
	filter index.Filter
	sort   index.SortBy
	// since is when the page was made, in Unix milliseconds.
	since   int64
	shown   []string
	others  map[string]bool
	changed map[string]index.Document
	news    bool
}

func (f *followed) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes := f.c.Index.Changes(ctx)
	if err := f.c.begin(f.s); err != nil {
		return err
	}
	// What changed between the page and now.
	for _, run := range f.shown {
		if d, known, err := f.c.Index.Get(ctx, run); err == nil && known {
			f.changed[run] = d
		}
	}
	if page, err := f.c.Index.Query(ctx, index.Query{Filter: f.filter, Limit: maxShown}); err == nil {
		for _, d := range page.Documents {
			if d.Changed > f.since {
				f.take(d)
			}
		}
	}
	if f.s.once {
		return f.flush()
	}
	tick, alive := time.NewTicker(pace), time.NewTicker(keepAlive)
	defer tick.Stop()
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case changed, ok := <-changes:
			if !ok {
				return nil // the browser connects anew
			}
			for _, d := range changed {
				f.take(d)
			}
		case <-tick.C:
			if err := f.flush(); err != nil {
				return err
			}
		case <-alive.C:
			if err := f.s.send("", "", nil); err != nil {
				return err
			}
		}
	}
}

func (f *followed) take(d index.Document) {
	switch {
	case slices.Contains(f.shown, d.Run):
		f.changed[d.Run] = d
	case len(f.others) <= maxOthers && !f.others[d.Run] && f.filter.Matches(&d, f.c.now()):
		f.others[d.Run], f.news = true, true
	}
}

func (f *followed) flush() error {
	for run, d := range f.changed {
		row := rowOf(d, f.c.now().UnixMilli())
		data, err := f.c.part("cells", row)
		if err != nil {
			return err
		}
		if err := f.s.send("run-"+row.Key, "", data); err != nil {
			return err
		}
		delete(f.changed, run)
	}
	if !f.news {
		return nil
	}
	f.news = false
	data, err := f.c.part("news", map[string]any{"N": len(f.others), "Most": maxOthers, "Address": listAddress(f.filter.String(), f.sort, "")})
	if err != nil {
		return err
	}
	return f.s.send("news", "", data)
}

// presence is what a page says of the broker: nothing while it is there.
type presence string

const (
	brokerAway presence = "away"
	brokerBack presence = "back"
)

// broker is what a page says of the broker that has said that of it before.
func (c *console) broker(said presence) presence {
	switch {
	case !c.Source.Connected():
		return brokerAway
	case said != "":
		return brokerBack
	}
	return ""
}

// liveBroker sends what a page says of the broker when that is not what it says already.
func (c *console) liveBroker(w http.ResponseWriter, r *http.Request) {
	said := presence(r.URL.Query().Get("said"))
	is := c.broker(said)
	if is == said {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c.sendPart(w, "broker", is)
}

// sendPart answers with a part of a page.
func (c *console) sendPart(w http.ResponseWriter, name string, data any) {
	made, err := c.part(name, data)
	if err != nil {
		c.Logger.Error("a part of a page could not be made", "part", name, "error", err)
		http.Error(w, "The page could not be made; the log of the console says why.", http.StatusInternalServerError)
		return
	}
	if _, err := w.Write(made); err != nil { //nolint:gosec // templates escape it
		c.Logger.Debug("a part of a page could not be sent", "part", name, "error", err)
	}
}

// refuse answers with an error where no page is asked for.
func (c *console) refuse(w http.ResponseWriter, err error) {
	e := sdk.AsError(err)
	status := httpguard.Status(e.Code)
	if status == http.StatusInternalServerError {
		c.Logger.Error("what changes cannot be told", "error", err)
	}
	http.Error(w, e.Message, status)
}

// happened is a live event in words.
type happened struct {
	ID        string `json:"id"`
	Label     string `json:"label"`
	Text      string `json:"text,omitempty"`
	At        int64  `json:"at"`
	Ephemeral bool   `json:"-"`
}

// liveRun sends what a run does from a milestone on, as lines.
func (c *console) liveRun(w http.ResponseWriter, r *http.Request) {
	run, err := c.find(r.Context(), r.PathValue("run"))
	if err != nil {
		c.refuse(w, err)
		return
	}
	after := mark(r.Header.Get("Last-Event-ID"))
	if after == (wire.Mark{}) {
		after = mark(r.URL.Query().Get("after"))
	}
	s := c.stream(w)
	defer s.end()
	if err := c.tail(r.Context(), s, run, after); err != nil && r.Context().Err() == nil {
		c.Logger.Debug("events could not be sent", "error", err)
	}
}

func (c *console) tail(ctx context.Context, s *stream, run client.Run, after wire.Mark) error {
	if err := c.begin(s); err != nil {
		return err
	}
	if s.once {
		return c.catchUp(ctx, s, run, after)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lines := make(chan happened, 64)
	var failed error // why lines ended, unless the run has
	var following sync.WaitGroup
	following.Go(func() {
		defer close(lines)
		var d show.Describer
		for l, err := range c.Runs.Follow(ctx, run, after) {
			if err != nil {
				failed = err
				return
			}
			h, ok := happenedIn(&d, l)
			if !ok {
				continue
			}
			select {
			case lines <- h:
			case <-ctx.Done():
				return
			}
		}
	})
	defer following.Wait()
	defer stop()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.C:
			if err := s.send("", "", nil); err != nil {
				return err
			}
		case h, more := <-lines:
			if !more {
				return c.sendEnd(s, failed)
			}
			if err := c.sendLine(s, h); err != nil {
				return err
			}
		}
	}
}

// sendEnd says why no further lines come: the run has ended, or cannot be followed. Where it may be followed later nothing is said, and the
// browser asks again.
func (c *console) sendEnd(s *stream, failed error) error {
	text := "The run has ended."
	switch e := sdk.AsError(failed); {
	case failed == nil:
	case e.Code == sdk.CodeUnavailable, e.Code == sdk.CodeInternal:
		return failed
	default:
		text = "The run cannot be followed: " + e.Message
	}
	data, err := c.part("end", text)
	if err != nil {
		return err
	}
	return s.send("end", "", data)
}

// catchUp sends what a run has done since a milestone.
func (c *console) catchUp(ctx context.Context, s *stream, run client.Run, after wire.Mark) error {
	for from := max(after.Revision, 1); ; from += entriesRead {
		entries, err := c.Source.Part(ctx, run.Name, from, entriesRead)
		if err != nil {
			return err
		}
		for _, h := range happenedAt(entries) {
			at := mark(h.ID)
			if at.Revision < after.Revision || at.Revision == after.Revision && at.Index <= after.Index {
				continue
			}
			if err := c.sendLine(s, h); err != nil {
				return err
			}
		}
		if n := len(entries); n < entriesRead {
			if n > 0 && entries[n-1].Head.Status == core.StatusDone {
				return c.sendEnd(s, nil)
			}
			return nil
		}
	}
}

func (c *console) sendLine(s *stream, h happened) error {
	if h.Ephemeral {
		data, err := c.part("fragment", h)
		if err != nil {
			return err
		}
		return s.send("fragment", "", data)
	}
	data, err := c.part("happened", h)
	if err != nil {
		return err
	}
	return s.send("line", h.ID, data)
}

// happenedIn is a live event in words; ok is false for one that says nothing to people.
func happenedIn(d *show.Describer, l wire.Live) (h happened, ok bool) {
	h = happened{At: l.Time, Ephemeral: l.Ephemeral}
	if l.Ephemeral {
		var delta sdk.Delta
		if l.Type != wire.LiveDelta || json.Unmarshal(l.Data, &delta) != nil {
			return h, false
		}
		h.Label, h.Text = "writes", delta.Text
		if delta.Thinking != "" {
			h.Label, h.Text = "thinks", delta.Thinking
		}
		return h, strings.TrimSpace(h.Text) != ""
	}
	h.ID = markText(wire.Mark{Revision: l.Revision, Index: l.Index})
	h.Label, h.Text = d.Describe(l)
	return h, h.Label != ""
}

// mark reads the number of a milestone: "<revision>.<index>". Anything else is the beginning.
func mark(id string) (m wire.Mark) {
	if _, err := fmt.Sscanf(id, "%d.%d", &m.Revision, &m.Index); err != nil {
		return wire.Mark{}
	}
	return m
}

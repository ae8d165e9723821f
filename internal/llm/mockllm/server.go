package mockllm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// runHeader names the run that a request belongs to, percent-encoded.
const runHeader = "X-Agentd-Run"

const maxRequest = 64 << 20

// Server answers from a script. Safe for concurrent use.
type Server struct {
	script *Script
	ledger *ledger
	mux    *http.ServeMux
}

// New returns a server for a script that ParseScript or LoadScript made.
func New(script *Script) *Server {
	s := &Server{script: script, ledger: newLedger(), mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var req chatRequest
		s.answer(w, r, chatProtocol{&req})
	})
	s.mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, &messagesProtocol{}) })
	s.mux.HandleFunc("POST /v1/embeddings", embeddings)
	s.mux.HandleFunc("GET /v1/models", s.models)
	// As a worker has it, so that agentd healthcheck can ask.
	s.mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	s.mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Stats()) })
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Stats is what happened so far.
func (s *Server) Stats() Stats { return s.ledger.snapshot() }

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	names := []string{"mock"}
	for _, c := range s.script.Conversations {
		if c.Match.Model != "" && !slices.Contains(names, c.Match.Model) {
			names = append(names, c.Match.Model)
		}
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list"}
	for _, n := range names {
		list.Data = append(list.Data, model{ID: n, Object: "model", OwnedBy: "agentd"})
	}
	writeJSON(w, http.StatusOK, list)
}

// protocol is how a client speaks to the server.
type protocol interface {
	// read returns the request in the form that conversations are kept in.
	read(body io.Reader) (chatRequest, error)
	// refuse answers with an error.
	refuse(w http.ResponseWriter, status int, message string)
	// answer sends a reply; with cut it breaks the connection half-way.
	answer(w http.ResponseWriter, a answer, cut bool)
}

// chatProtocol is that of chat completions.
type chatProtocol struct{ req *chatRequest }

func (p chatProtocol) read(body io.Reader) (chatRequest, error) {
	err := json.NewDecoder(body).Decode(p.req)
	return *p.req, err
}

func (chatProtocol) refuse(w http.ResponseWriter, status int, message string) {
	kind := "server_error"
	if status == http.StatusTooManyRequests {
		kind = "rate_limit_exceeded"
	} else if status < http.StatusInternalServerError {
		kind = "invalid_request_error"
	}
	writeJSON(w, status, errorBody{Error: errorFields{Message: message, Type: kind, Code: &kind}})
}

func (p chatProtocol) answer(w http.ResponseWriter, a answer, cut bool) {
	if p.req.Stream {
		a.stream(w, p.req.StreamOptions.IncludeUsage, cut)
	} else {
		a.whole(w, cut)
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, p protocol) {
	s.ledger.request()
	run, err := url.PathUnescape(r.Header.Get(runHeader))
	var req chatRequest
	if err == nil {
		req, err = p.read(http.MaxBytesReader(w, r.Body, maxRequest))
	}
	if r.Context().Err() != nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return // the client went away in the middle of its request
	}
	if err != nil {
		s.ledger.mismatch(Mismatch{Run: run, Message: err.Error()})
		p.refuse(w, http.StatusBadRequest, "the request cannot be read: "+err.Error())
		return
	}
	turn := req.turn()
	reply, mismatch := s.find(run, req)
	if mismatch != "" {
		s.ledger.mismatch(Mismatch{Run: run, Turn: turn, Message: mismatch})
		p.refuse(w, http.StatusUnprocessableEntity, mismatch)
		return
	}
	key := "run " + run
	if run == "" {
		key = "first " + req.firstUser()
	}
	fault, faulty := s.ledger.fault(key, turn, reply.Faults)
	if faulty && !fault.Cut {
		fault.write(w, p)
		return
	}
	if !wait(r, reply.Delay) {
		return
	}
	if !faulty {
		s.ledger.answered(key, turn)
	}
	p.answer(w, newAnswer(req, reply), fault.Cut)
}

// find returns the reply that is due, or why there is none.
func (s *Server) find(run string, req chatRequest) (Reply, string) {
	var matching, strict []Conversation
	for _, c := range s.script.Conversations {
		if c.Match.holds(run, req) {
			matching = append(matching, c)
		}
	}
	if len(matching) == 0 {
		return Reply{}, fmt.Sprintf("no conversation of the script matches: model %q, run %q, first user message %s",
			req.Model, run, excerpt(req.firstUser(), 0))
	}
	first := matching[0]
	if len(first.Expect) == 0 {
		if d := first.offered(req); d != "" {
			return Reply{}, first.Name + ": " + d
		}
		if first.Match.Last != "" {
			return first.Replies[0], ""
		}
		return first.reply(req.turn())
	}
	for _, c := range matching {
		if len(c.Expect) > 0 {
			strict = append(strict, c)
		}
	}
	return findStrict(strict, req)
}

// findStrict takes the conversations that agree with the request. When none does, it explains the one that agrees
// longest.
func findStrict(candidates []Conversation, req chatRequest) (Reply, string) {
	var found []Reply
	var names []string
	longest, why := -1, ""
	for _, c := range candidates {
		agree, d := compare(c.Expect, req.Messages)
		if d == "" {
			d = c.offered(req)
		}
		var reply Reply
		if d == "" {
			reply, d = c.next(req)
		}
		if d == "" {
			found, names = append(found, reply), append(names, c.Name)
		} else if agree > longest {
			longest, why = agree, c.Name+": "+d
		}
	}
	if len(found) == 0 {
		return Reply{}, why
	}
	for _, r := range found[1:] {
		if !r.equal(found[0]) {
			return Reply{}, fmt.Sprintf("%s agree so far and then differ; say which is meant with the header %s",
				strings.Join(names, ", "), runHeader)
		}
	}
	return found[0], ""
}

func (m Match) holds(run string, req chatRequest) bool {
	first := req.firstUser()
	return (m.First == "" || m.First == first) && strings.Contains(first, m.Contains) &&
		strings.Contains(req.system(), m.System) && strings.Contains(req.lastUser(), m.Last) &&
		(m.Model == "" || m.Model == req.Model) && (run == "" || strings.HasSuffix(run, m.Run))
}

// offered says how the tools of a request differ from those it must have, in any order.
func (c Conversation) offered(req chatRequest) string {
	if c.Tools == nil {
		return ""
	}
	var got []string
	for _, t := range req.Tools {
		got = append(got, t.Function.Name)
	}
	want := slices.Sorted(slices.Values(c.Tools))
	slices.Sort(got)
	if !slices.Equal(want, got) {
		return fmt.Sprintf("tools: want %s, got %s", strings.Join(want, ", "), strings.Join(got, ", "))
	}
	return ""
}

// next is the reply that a strict conversation continues with after the messages of req.
func (c Conversation) next(req chatRequest) (Reply, string) {
	at := len(req.Messages)
	if at >= len(c.Expect) {
		return Reply{}, fmt.Sprintf("message %d: the record has ended", at)
	}
	if c.Expect[at].Role != roleAssistant {
		return Reply{}, fmt.Sprintf("message %d: the model is asked, but the record goes on with %s", at,
			show(c.Expect[at]))
	}
	reply, d := c.reply(req.turn())
	return reply, strings.TrimPrefix(d, c.Name+": ")
}

func (c Conversation) reply(turn int) (Reply, string) {
	if turn >= len(c.Replies) {
		return Reply{}, fmt.Sprintf("%s: reply %d is asked for, and there are %d", c.Name, turn+1, len(c.Replies))
	}
	return c.Replies[turn], ""
}

func (r Reply) equal(o Reply) bool {
	return r.Text == o.Text && slices.EqualFunc(r.Calls, o.Calls, func(a, b ReplyCall) bool {
		return a.Name == b.Name && equalJSON(string(a.Arguments), string(b.Arguments))
	})
}

func (f Fault) write(w http.ResponseWriter, p protocol) {
	if after := f.RetryAfter; after > 0 {
		// In whole seconds for every client, and exactly for those that know the other header.
		w.Header().Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(after.Milliseconds(), 10))
	}
	message := f.Message
	if message == "" {
		message = "scripted fault: " + http.StatusText(f.Status)
	}
	p.refuse(w, f.Status, message)
}

// wait reports whether the client still waits after d.
func wait(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that went away has no use for an error
}

const idLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// vendorID returns a fresh id, as vendors do: two answers to the same request have different ones.
func vendorID(prefix string) string {
	out := []byte(prefix)
	for range 24 {
		out = append(out, idLetters[rand.IntN(len(idLetters))])
	}
	return string(out)
}

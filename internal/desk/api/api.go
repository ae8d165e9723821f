// Package api is the HTTP API of the human desk, for front ends (docs/approvals.md, "HTTP"). JSON carries texts as models
// wrote them: whoever shows them must escape them.
package api

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"

	"agentd/internal/desk"
	"agentd/internal/httpguard"
	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// Options are what an API is made of.
type Options struct {
	Desk *desk.Desk
	// Who decisions are published as: the API's callers share it.
	Who string
	// Token is what callers must present as "Authorization: Bearer <token>". Empty lets everybody in, which httpguard.Listen
	// refuses on any address but loopback.
	Token  string
	Logger *slog.Logger
}

// maxBody is the largest request in bytes.
const maxBody = 1 << 20

type api struct {
	Options
	guesses *httpguard.Guesses
}

// Handler is the API.
func Handler(o Options) http.Handler {
	a := api{o, httpguard.NewGuesses(o.Logger)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/requests", a.list)
	mux.HandleFunc("GET /v1/requests/{id}", a.show)
	mux.HandleFunc("POST /v1/requests/{id}/decision", a.decide)
	mux.HandleFunc("POST /v1/requests/{id}/answer", a.answer)
	mux.HandleFunc("GET /v1/events", a.events)
	return a.guard(mux)
}

// guard lets nobody in who must not be. A browser cannot be made to decide from another site: what changes something must
// be JSON by its content type, which no form can send, and nothing allows another origin to send it.
func (a api) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		in, err := a.admitted(r)
		if err != nil {
			a.fail(w, 0, err)
			return
		}
		if !in {
			w.Header().Set("WWW-Authenticate", "Bearer")
			a.fail(w, http.StatusUnauthorized, sdk.Errorf(sdk.CodePermissionDenied, "the bearer token is missing or wrong"))
			return
		}
		if a.Token == "" && !httpguard.Local(r.Host) {
			// A name of somebody else's that was made to point here.
			a.fail(w, http.StatusForbidden, sdk.Errorf(sdk.CodePermissionDenied, "this host name is not served"))
			return
		}
		if a.Token == "" && httpguard.Foreign(r) {
			// It could decide nothing, but what it asks for is recorded as seen.
			a.fail(w, http.StatusForbidden, sdk.Errorf(sdk.CodePermissionDenied, "pages of other sites are not served"))
			return
		}
		if r.Method == http.MethodPost {
			kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			if err != nil || kind != wire.ContentTypeJSON {
				a.fail(w, http.StatusUnsupportedMediaType, sdk.Errorf(sdk.CodeInvalidEvent, "want Content-Type: application/json"))
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		next.ServeHTTP(w, r)
	})
}

// admitted reports whether a request has the token, where there is one. The error is of too many that are wrong.
func (a api) admitted(r *http.Request) (bool, error) {
	if a.Token == "" {
		return true, nil
	}
	return a.guesses.Bears(r, a.Token)
}

func (a api) list(w http.ResponseWriter, r *http.Request) {
	a.send(w, map[string]any{"requests": a.Desk.Marked(r.Context(), a.Desk.List()), "omitted": a.Desk.Omitted()})
}

func (a api) show(w http.ResponseWriter, r *http.Request) {
	detail, unrecorded, err := a.Desk.View(r.Context(), r.PathValue("id"), a.Who)
	if err != nil {
		a.fail(w, 0, err)
		return
	}
	shown := struct {
		requests.Detail
		Unrecorded string `json:"unrecorded,omitempty"`
	}{Detail: detail}
	if unrecorded != nil {
		shown.Unrecorded = sdk.AsError(unrecorded).Message
	}
	a.send(w, shown)
}

func (a api) decide(w http.ResponseWriter, r *http.Request) {
	var p sdk.PermissionDecision
	if !a.read(w, r, &p) {
		return
	}
	if p.ArgsHash == "" && len(p.Calls) == 0 || slices.ContainsFunc(p.Calls, func(c sdk.CallDecision) bool { return c.ArgsHash == "" }) {
		a.fail(w, 0, sdk.Errorf(sdk.CodeContractViolation, "args_sha256 is missing: a decision is on the arguments that somebody saw"))
		return
	}
	outcome, err := a.Desk.Decide(r.Context(), r.PathValue("id"), a.Who, p)
	a.outcome(w, outcome, err)
}

func (a api) answer(w http.ResponseWriter, r *http.Request) {
	var reply client.Reply
	if !a.read(w, r, &reply) {
		return
	}
	outcome, err := a.Desk.Answer(r.Context(), r.PathValue("id"), a.Who, reply)
	a.outcome(w, outcome, err)
}

// outcome answers 200 when the run took the answer, 202 when nobody has handled it yet, and 409 when it was refused: by the run, or before it
// was published, which leaves the request open.
func (a api) outcome(w http.ResponseWriter, o client.Outcome, err error) {
	if errors.Is(err, &sdk.Error{Code: sdk.CodeDecisionRefused}) {
		o, err = client.Outcome{State: client.OutcomeRefused, Who: a.Who, Refused: sdk.AsError(err).Message, Open: true}, nil
	}
	if err != nil {
		a.fail(w, 0, err)
		return
	}
	w.Header().Set("Content-Type", wire.ContentTypeJSON)
	switch o.State {
	case client.OutcomeRefused:
		w.WriteHeader(http.StatusConflict)
	case client.OutcomeSent:
		w.WriteHeader(http.StatusAccepted)
	case client.OutcomeCounted:
	}
	a.send(w, o)
}

// read decodes the body. Unknown fields are refused: one that is misspelt could be the scope.
func (a api) read(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil && decoder.Decode(&struct{}{}) != io.EOF {
		err = errors.New("there is more than one value")
	}
	if err == nil {
		return true
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		a.fail(w, http.StatusRequestEntityTooLarge, sdk.Errorf(sdk.CodeTooLarge, "the body has more than %d bytes", maxBody))
		return false
	}
	a.fail(w, http.StatusBadRequest, sdk.Errorf(sdk.CodeInvalidEvent, "the body cannot be read: %s", err))
	return false
}

func (a api) send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", wire.ContentTypeJSON)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		a.Logger.Debug("response could not be sent", "error", err)
	}
}

// fail answers with a problem; status 0 follows from its code. What is internal is logged, not sent.
func (a api) fail(w http.ResponseWriter, status int, err error) {
	e := sdk.AsError(err)
	if status == 0 {
		status = httpguard.Status(e.Code)
	}
	if status == http.StatusInternalServerError {
		a.Logger.Error("request failed", "error", err)
	}
	w.Header().Set("Content-Type", wire.ContentTypeJSON)
	w.WriteHeader(status)
	a.send(w, map[string]any{"error": wire.NewProblem(e)})
}

package core

import (
	"cmp"
	"encoding/json"
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// maxBatchData bounds what one event asks people, in bytes: the requests of further calls are another event.
const maxBatchData = 512 << 10

// Event names the events that ask for the answer to a call: several permission requests may have one.
func (c *Call) Event() string {
	if c.Permission == nil {
		return c.ID
	}
	return cmp.Or(c.Permission.Batch, c.ID)
}

// Asks reports whether the events of that name ask a person about the call: for its permission, that of others with it, or what its tool
// wants to know.
func (h *Head) Asks(c *Call, event string) bool {
	request := h.Call(c.Held)
	return c.Asked == event || request != nil && request.Event() == event
}

// batched reports whether one event asks for the call and others.
func (c *Call) batched() bool { return c.Permission != nil && c.Permission.Batch != "" }

// Answering is the call of the open round that an answer to events of that name is for; nil is none. Of several permission requests
// it is the first that is open, or the first when none is.
func (h *Head) Answering(event string) *Call {
	var answered *Call
	for i := range h.Calls {
		c := &h.Calls[i]
		switch {
		case c.Event() != event:
		case !c.Closed():
			return c
		case answered == nil:
			answered = c
		}
	}
	return answered
}

// askedIn are the permission requests that the attempt at the request of c asks for, those that are closed by now too.
func (h *Head) askedIn(c *Call, attempt int) []*Call {
	var asked []*Call
	for i := range h.Calls {
		if o := &h.Calls[i]; o.Event() == c.Event() && o.attempt() >= attempt {
			asked = append(asked, o)
		}
	}
	return asked
}

// sharesAttempt reports whether another open request was asked with the same event, and waits for its answer.
func (h *Head) sharesAttempt(c *Call, attempt int) bool {
	return h.open(func(o *Call) bool {
		return o != c && o.Event() == c.Event() && attempt > o.Voided && attempt <= o.attempt() && !slices.Contains(o.Refused, attempt)
	})
}

// DecidedRequests are those that a decision on that attempt at the request of c is about, with what it says of each; refusal says why
// it is about none. One that was decided before is among them only where the decision names it.
func (h *Head) DecidedRequests(c *Call, attempt int, d *sdk.PermissionDecision) (decided []RequestDecision, refusal *sdk.Error) {
	refused := func(format string, args ...any) ([]RequestDecision, *sdk.Error) {
		return nil, sdk.Errorf(sdk.CodeDecisionRefused, format, args...)
	}
	if c.Permission.Batch == "" {
		if len(d.Calls) > 0 || d.All {
			return refused("the request is for one call; decide on it without naming calls")
		}
		return []RequestDecision{{c, *d}}, nil
	}
	asked := h.askedIn(c, attempt)
	switch {
	case d.All && len(d.Calls) > 0, !d.All && len(d.Calls) == 0:
		return refused("the request is for several calls; name those that are decided, or all")
	case d.All && (len(d.Args) > 0 || len(d.Result) > 0):
		return refused("arguments and results are of one call; name it")
	case d.All && d.ArgsHash != callsHash(asked):
		return refused("it was decided on other arguments")
	case len(d.Calls) > MaxRound:
		return refused("it names %d calls, more than %d", len(d.Calls), MaxRound)
	}
	if d.All {
		for _, o := range asked {
			if !o.Closed() {
				decided = append(decided, RequestDecision{o, d.Of(sdk.CallDecision{ArgsHash: o.Permission.ArgsHash})})
			}
		}
		return decided, nil
	}
	for _, named := range d.Calls {
		i := slices.IndexFunc(asked, func(o *Call) bool { return o.Permission.Call == named.Call })
		if i < 0 {
			return refused("it names a call that the request does not ask for")
		}
		if slices.ContainsFunc(decided, func(o RequestDecision) bool { return o.Request == asked[i] }) {
			return refused("it names a call twice")
		}
		decided = append(decided, RequestDecision{asked[i], d.Of(named)})
	}
	return decided, nil
}

// Lets reports whether an answer to request, with that decision on that attempt at it, lets a call be made that a person is asked about:
// a question's always does, a decision where enough have allowed the call.
func (h *Head) Lets(c, request *Call, attempt int, d *sdk.PermissionDecision) bool {
	switch {
	case request.Permission == nil:
		return true
	case d == nil:
		return false
	}
	decided, _ := h.DecidedRequests(request, attempt, d)
	return slices.ContainsFunc(decided, func(r RequestDecision) bool {
		return r.Request.ID == c.Held && r.Decision == sdk.DecisionAllow && len(r.Request.Permission.Allowed)+1 >= r.Request.Permission.Quorum
	})
}

// RequestDecision is what a decision says of one request.
type RequestDecision struct {
	Request *Call
	sdk.PermissionDecision
}

func callsHash(asked []*Call) string {
	hashes := make([]string, len(asked))
	for i, o := range asked {
		hashes[i] = o.Permission.ArgsHash
	}
	return sdk.CallsHash(hashes)
}

// asked are the calls of the admission that people are asked for, those together that one request asks for. opened are the calls as the round has
// opened them: nobody is asked for one that has its result.
func (p *Admission) asked(opened []Call) [][]int {
	var groups [][]int
	var sizes []int
	for i := range p.Calls {
		c := &p.Calls[i]
		if !c.asks() || opened[i].Closed() {
			continue
		}
		g := slices.IndexFunc(groups, func(group []int) bool {
			return p.Calls[group[0]].ruling.Terms.SharesRequest(c.ruling.Terms)
		})
		if g < 0 || sizes[g]+len(c.request) > maxBatchData {
			groups, sizes = append(groups, []int{i}), append(sizes, len(c.request))
			continue
		}
		groups[g], sizes[g] = append(groups[g], i), sizes[g]+len(c.request)
	}
	return groups
}

// batchID names the event that asks for those calls of the admission together; empty where each has its own.
func (t *transition) batchID(admission *Admission, calls []int) string {
	if !admission.Calls[calls[0]].ruling.Terms.Batch {
		return ""
	}
	ids := make([]string, len(calls))
	for i, c := range calls {
		ids[i] = admission.Calls[c].ID
	}
	h := &t.Head
	covered, _ := json.Marshal(ids) // call ids are letters, digits and hyphens
	return wire.CallID(h.Key(), h.Init.Token, h.Round, calls[0], sdk.TypePermissionRequest, covered)
}

// emit adds an effect, unless another request of the same event has added it.
func (t *transition) emit(f Effect) {
	if !slices.ContainsFunc(t.Effects, func(o Effect) bool {
		return o.Kind == f.Kind && o.Call == f.Call && o.Attempt == f.Attempt
	}) {
		t.Effects = append(t.Effects, f)
	}
}

// batched is the data of an event that asks for the requests of the entry which are open in the head that sends it; ok is false where
// the event asks for none.
func (e *Entry) batched(event string, sent *Head) (data json.RawMessage, ok bool) {
	var all []sdk.PermissionRequest
	for i := range e.Requests {
		c := sent.Call(e.Requests[i].ID)
		if c == nil || c.Permission == nil || c.Permission.Batch != event || c.Closed() {
			continue
		}
		var r sdk.PermissionRequest
		if json.Unmarshal(e.Requests[i].Data, &r) != nil {
			return nil, false
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, false
	}
	encoded, err := EncodeJSON(sdk.Batched(all))
	if err != nil {
		return nil, false
	}
	data, err = wire.Canonicalize(encoded)
	return data, err == nil
}

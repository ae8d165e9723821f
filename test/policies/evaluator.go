package policies

import (
	"cmp"
	"math"
	"path"
	"slices"
)

// evaluator says whether a call may be made, by docs/permissions.md alone: what it knows are the policies, and what people published.
type evaluator struct {
	requests []*request
	// granted are the calls that nothing but a grant for others allows, with the requests that may have been it.
	granted [][]*request
}

// ruling is the verdict on a call, and the terms where it is ask.
func (p policy) ruling(c call) (string, terms) {
	for _, r := range p.rules {
		named := len(r.tools) == 0 || slices.ContainsFunc(r.tools, func(pattern string) bool { ok, _ := path.Match(pattern, c.tool); return ok })
		labelled := r.label == "" || r.label == c.label
		if yes, known := r.when.holds(c.args); named && labelled && (known && yes || !known && r.verdict != "allow") {
			return r.verdict, p.general.under(r.own)
		}
	}
	return "allow", terms{}
}

func (t terms) under(own *terms) terms {
	if own == nil {
		return t
	}
	t.fourEyes, t.quorum, t.stages, t.scopes = own.fourEyes || t.fourEyes, cmp.Or(own.quorum, t.quorum), own.stages, own.scopes
	if own.approvers != nil {
		t.approvers = own.approvers
	}
	return t
}

// demand is what one set of policies, all in force at a time, wants of a call: what was required of the run is asked for, and what a
// hook suspends, where none of them asks.
func demand(c call, policies []policy, required []string, suspended *terms) (asks []terms, denied bool) {
	for _, p := range policies {
		switch verdict, t := p.ruling(c); verdict {
		case "deny":
			return nil, true
		case "ask":
			asks = append(asks, t)
		}
	}
	if len(asks) == 0 && slices.ContainsFunc(required, func(pattern string) bool { ok, _ := path.Match(pattern, c.tool); return ok }) {
		asks = append(asks, policies[len(policies)-1].general)
	}
	if len(asks) == 0 && suspended != nil {
		asks = append(asks, *suspended)
	}
	return asks, false
}

// may reports whether a call that is asked for under all of the terms may be made now, and what allows it.
func (e *evaluator) may(c call, asks []terms, now int64) (allowed bool, by string) {
	barred := func(at int64) bool {
		return slices.ContainsFunc(e.requests, func(q *request) bool {
			o := q.outcome(q.terms)
			// One event asks for several calls: what is said of one that a grant has let go counts no more, and nobody is told so.
			letGo := slices.ContainsFunc(e.requests, func(g *request) bool {
				by := g.outcome(g.terms)
				return !g.retry && by.scope != "call" && by.pattern.field == "" && by.at >= q.sent[0].timeout && by.at < o.at && g.covers(q.call, by, q.terms, by.at)
			})
			return o.decided && o.verdict == "deny" && o.at < at && q.run == c.run && q.reaches(c, o, at) && !letGo
		})
	}
	held, grants := int64(math.MaxInt64), []*request(nil) // since when, and what else allows it
	for _, q := range e.requests {
		if q.id != c.id || q.retry {
			continue
		}
		held = q.sent[0].timeout
		q.made = c.raw
		for _, d := range q.decisions {
			d.late = d.late || d.edited != "" && barred(d.at)
		}
		o := q.outcome(slices.Concat(q.terms, asks))
		if o.allowed && (o.edited == "" && q.raw == c.raw || o.edited == c.raw) {
			return true, "decision" + map[bool]string{true: " that edits"}[o.edited != ""]
		}
	}
	for _, q := range e.requests {
		o := q.outcome(q.terms)
		until := now
		if o.at >= held {
			until = o.at // it let the call go there and then
		}
		if !barred(until) && q.covers(c, o, asks, until) {
			grants, by = append(grants, q), "grant "+o.scope
		}
	}
	e.granted = append(e.granted, grants)
	return e.enough(), by
}

// outcome judges what people decided on a request by the terms.
func (q *request) outcome(asks []terms) (o outcome) {
	need := 1
	for _, t := range asks {
		need = max(need, t.quorum)
	}
	var first *outcome
	for _, d := range q.decisions {
		k := -1
		for k+1 < len(q.sent) && q.sent[k+1].timeout <= d.at {
			k++
		}
		refused := k < 0 || !d.seen || d.late || d.stage != k && d.at == q.sent[k].timeout || d.domain != q.sent[k].domain || slices.Contains(o.by, d.who) && need > 1 ||
			d.edited != "" && (d.edited != q.made || need > 1 || d.scope != "call" || d.verdict != "allow") ||
			slices.ContainsFunc(asks, func(t terms) bool { return !t.route(q, k) || !t.mayDecide(d.who, q.initiator) }) ||
			slices.ContainsFunc(q.terms, func(t terms) bool {
				return d.at >= q.sent[k].timeout+t.stages[k].timeout || d.scope != "call" && !slices.Contains(t.scopes, d.scope)
			})
		if refused {
			continue
		}
		by := append(slices.Clone(o.by), d.who)
		o = outcome{*d, d.verdict != "allow" || len(by) >= need, d.verdict == "allow" && len(by) >= need, by, k}
		if first == nil {
			first = &outcome{decision: *d, stage: k}
		} else if f := *first; f.stage != k || f.scope != d.scope || f.uses != d.uses || f.expires != d.expires || f.pattern != d.pattern {
			o.scope, o.uses, o.expires = "call", 0, 0 // they agree on no more; what bounds a wider grant does not bound the call
			first.scope = ""
		}
		if o.decided {
			return o
		}
	}
	return o
}

func (t terms) route(q *request, k int) bool {
	return k < len(t.stages) && slices.EqualFunc(t.stages[:k+1], q.sent[:k+1], func(a, b stage) bool { return a.domain == b.domain })
}

func (t terms) mayDecide(who, initiator string) bool {
	return (!t.fourEyes || who != initiator) && (len(t.approvers) == 0 || slices.Contains(t.approvers, who))
}

// reaches reports whether what was decided on a request is about another call too.
func (q *request) reaches(c call, o outcome, now int64) bool {
	if q.tool != c.tool || q.agent != c.agent || o.expires > 0 && o.expires <= now {
		return false
	}
	switch o.scope {
	case "call":
		return q.retry && q.run == c.run && q.raw == c.raw
	case "run+tool+pattern", "run+tool":
		yes, known := o.pattern.holds(c.args)
		return q.run == c.run && yes && known
	}
	return q.initiator == c.initiator
}

func (q *request) covers(c call, o outcome, asks []terms, now int64) bool {
	return o.allowed && q.reaches(c, o, now) && !slices.ContainsFunc(asks, func(t terms) bool { return !t.met(q, o, c) })
}

// met reports whether those who allowed a request are whom the terms of another call need.
func (t terms) met(q *request, o outcome, c call) bool {
	return t.route(q, o.stage) && (o.scope == "call" || slices.Contains(t.scopes, o.scope)) && len(o.by) >= t.quorum &&
		!slices.ContainsFunc(o.by, func(who string) bool { return !t.mayDecide(who, c.initiator) })
}

// enough reports whether the uses of the grants suffice for the calls that were made under them, however they are shared out.
func (e *evaluator) enough() bool {
	users, share := map[*request][]int{}, func(int, map[*request]bool) bool { return false }
	share = func(call int, tried map[*request]bool) bool {
		for _, q := range e.granted[call] {
			if tried[q] {
				continue
			}
			tried[q] = true
			o := q.outcome(q.terms)
			if o.scope == "call" {
				o.uses = 1
			}
			if o.uses == 0 || len(users[q]) < o.uses {
				users[q] = append(users[q], call)
				return true
			}
			if i := slices.IndexFunc(users[q], func(other int) bool { return share(other, tried) }); i >= 0 {
				users[q][i] = call
				return true
			}
		}
		return false
	}
	enough := true
	for i := range e.granted {
		enough = enough && share(i, map[*request]bool{})
	}
	return enough
}

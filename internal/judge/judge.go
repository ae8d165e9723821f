// Package judge says of the text that a model ends a run with whether it is an answer: or whether the model has stopped before it was
// done, asks back instead of going on, or claims what it has not done. It knows a language by its Pack, which is data, and has weights
// that were learned from texts, which are data too; a text in a language without a pack is hardly ever judged wrong. It is pure.
package judge

import (
	"cmp"
	"slices"
	"strings"
)

// Name is a judge.
type Name string

// The judges.
const (
	// Incomplete is a text that says that work is left, or what the model will do next, without doing it.
	Incomplete Name = "incomplete"
	// Deflecting is a text that asks back, or says that it cannot, of a model that has begun and may not ask.
	Deflecting Name = "deflecting"
	// Unverified is a text that claims a change which no call can have made.
	Unverified Name = "unverified"
)

// Names are the judges, in the order in which they are asked.
var Names = []Name{Unverified, Incomplete, Deflecting}

// Call is one that the model has made.
type Call struct {
	Tool string
	// Reads says that it cannot have changed anything.
	Reads  bool
	Failed bool
	// Result is what the model was shown.
	Result string
}

// Reply is a text without a call, and what led to it.
type Reply struct {
	Text string
	// Calls are those of the run, in order; the last Since of them were made after the last words of a person.
	Calls []Call
	Since int
	// MayAsk says that a person reads the text and can answer it, or that the model has another way to ask.
	MayAsk bool
}

// changed reports whether a call may have changed something, and failing are the tools of those that would have and have never done so.
func (r *Reply) changed() (changed bool, failing []string) {
	done := map[string]bool{}
	for i := range r.Calls {
		if c := &r.Calls[i]; !c.Reads {
			done[c.Tool] = done[c.Tool] || !c.Failed
			changed = changed || !c.Failed
		}
	}
	for i := range r.Calls {
		if c := &r.Calls[i]; !c.Reads && !done[c.Tool] {
			failing = append(failing, c.Tool)
		}
	}
	return changed, failing
}

func (r *Reply) failed() bool {
	return slices.ContainsFunc(r.Calls, func(c Call) bool { return c.Failed })
}

// trusted is after how many calls a question is taken for an answer: whoever has worked that much has a reason to ask.
const trusted = 3

// short is the size, in bytes, below which a text that ends in a question is nothing but one.
const short = 300

// phrase is what the phrases object to in a text, in its own words; empty is nothing.
func (p *Pack) phrase(judge Name, t text, r Reply) string {
	switch judge {
	case Incomplete:
		return p.incomplete(t, r)
	case Deflecting:
		return p.deflecting(t, r)
	case Unverified:
		return p.unverified(t, r)
	}
	return ""
}

func (p *Pack) incomplete(t text, r Reply) string {
	if p.completes(t) || r.MayAsk && slices.ContainsFunc(t.sentences, func(s sentence) bool { return s.asks() || p.ask.in(s) }) {
		return ""
	}
	works, instructs := p.works(t, &r), p.instructs.within(t)
	for _, s := range t.sentences {
		if s.asks() || p.reported.in(s) {
			continue
		}
		if !r.MayAsk && !p.courtesy.in(s) && (!p.later.in(s) || p.now.in(s)) {
			if found := p.found(p.promise, s.without(p.mere)); found != "" && (!instructs || p.mine.in(s)) {
				return found
			}
		}
		if r.Since == 0 || !works || p.yours.in(s) && !p.mine.in(s) || p.excuse.in(s) {
			continue
		}
		if found := p.found(p.leftover, s); found != "" {
			return found
		}
		if found := p.found(p.open, s); found != "" {
			return found
		}
		if found := p.part(s); found != "" && !p.excuse.within(t) {
			return found
		}
	}
	if r.Since > 0 && t.unticked != "" && !p.excuse.in(sentence{text: t.unticked}) {
		return t.unticked
	}
	return ""
}

// works reports whether a model has work of its own, of which something can be left: because it has made more than one call or one that
// may change something, or says what it did. What is left of anything else, it only reports.
func (p *Pack) works(t text, r *Reply) bool {
	changed, failing := r.changed()
	if changed || len(failing) > 0 || r.Since > 1 {
		return true
	}
	return slices.ContainsFunc(t.sentences, func(s sentence) bool {
		return p.did.in(s) || slices.ContainsFunc(strings.Fields(s.text), func(word string) bool {
			return p.worked.in(sentence{text: word}) && slices.ContainsFunc(r.Calls, func(c Call) bool { return p.does(c.Tool, word) })
		})
	})
}

// part is where a sentence says that fewer than all of something are done: "3 of the 8".
func (p *Pack) part(s sentence) string {
	if p.ratio == nil || !p.worked.in(s) {
		return ""
	}
	for _, m := range p.ratio.FindAllStringSubmatch(s.text, -1) {
		done, all := p.number(m[p.ratio.SubexpIndex("part")]), p.number(m[p.ratio.SubexpIndex("whole")])
		if done > 0 && done < all {
			return m[0]
		}
	}
	return ""
}

func (p *Pack) deflecting(t text, r Reply) string {
	if r.MayAsk || r.Since == 0 || r.Since >= trusted || p.completes(t) {
		return ""
	}
	// A refusal is a report where a call has failed, or where it has a reason.
	reported := r.failed() || p.reason.within(t)
	size := 0
	var last sentence
	narrates := true
	for i, s := range t.sentences {
		if found := p.refuse.find(s); found != "" && !reported {
			return found
		}
		if p.courtesy.in(s) || p.reported.in(s) {
			continue
		}
		if found := p.found(p.ask, s); found != "" {
			return found
		}
		if found := p.question.find(s); s.asks() && found != "" && (i+1 == len(t.sentences) || p.expects(s, t.sentences[i+1])) {
			return found
		}
		size += len(s.text)
		last = s
		narrates = narrates && p.narrate.in(s)
	}
	if size > 0 && size < short {
		if last.asks() {
			return last.text
		}
		if narrates {
			return last.text
		}
	}
	return ""
}

// expects reports whether a question is to be answered by who reads it: not by the sentence after it.
func (p *Pack) expects(question, next sentence) bool {
	return p.addressed.in(question) && !p.reply.in(next)
}

func (p *Pack) unverified(t text, r Reply) string {
	changed, failing := r.changed()
	if changed && len(failing) == 0 || len(r.Calls) == 0 && (t.shows || slices.ContainsFunc(t.sentences, p.product.in)) {
		return ""
	}
	// What has become of something can have been read, unless a call that would have changed it has failed.
	l := claims{calls: r.Calls, admits: len(failing) > 0 && p.admitted.within(t)}
	l.read = len(r.Calls) > 0 && (len(failing) == 0 || l.admits)
	l.known = slices.ContainsFunc(r.Calls, func(c Call) bool { return c.Result != "" })
	l.boasts = slices.ContainsFunc(t.sentences, func(s sentence) bool { return !s.asks() && p.found(p.boast, s) != "" })
	for _, s := range t.sentences {
		if s.asks() || p.hypothetical.in(s) {
			continue
		}
		l.dates = p.datesOf(s)
		for i, c := range p.clauses(s) {
			found := p.claimed(l, s, c, i == 0)
			if p.takenBack(c, found) || l.admits && p.admitted.in(c) {
				found = ""
			}
			if found != "" && (!changed || p.fails(c, failing)) {
				return found
			}
		}
	}
	return ""
}

// takenBack reports whether a clause denies what was found in it: before it, or with words that take back all of the clause.
func (p *Pack) takenBack(c sentence, found string) bool {
	if found == "" || p.withdrawn.in(c) || p.arranged.in(c) && !p.present.in(c) {
		return true
	}
	end := strings.Index(c.text, found) + len(found)
	return p.denied.in(sentence{text: c.text[:end]})
}

// claims are what the claims of a reply are held against.
type claims struct {
	// read says that calls have only read; known, that it is known what they returned.
	read, known, boasts bool
	// admits says that the text itself has that a call failed: what it says of anything else does not claim that the call succeeded.
	admits bool
	calls  []Call
	// dates are those of the sentence that is looked at.
	dates dates
}

// claimed is what a clause of a sentence claims that no call has done.
func (p *Pack) claimed(l claims, s, c sentence, first bool) string {
	if found := p.found(p.claim, c); found != "" && !p.called(c, l.calls) {
		return found
	}
	if found := p.found(p.acts, c); found != "" && len(l.calls) > 0 && !p.observed.in(sentence{text: found}) && !p.called(c, l.calls) {
		return found
	}
	if found := p.found(p.elliptic, c); found != "" && !p.finite.in(c) && (first || p.own.in(s)) {
		if !l.read || !p.past(p.datesOf(c), c) && !p.told(c, l.calls) {
			return found
		}
	}
	if l.read && (p.past(l.dates, c) || p.told(c, l.calls)) {
		return ""
	}
	if found := p.found(p.fresh, c); found != "" {
		return found
	}
	if found := p.found(p.state, c); found != "" && (!l.read || l.boasts || l.known && p.passive.in(c) && p.changed.in(c)) {
		return found
	}
	if !l.read {
		return p.found(p.boast, c)
	}
	return ""
}

// leading is before which byte of a sentence a date dates all of it, and adverb how many bytes before a word of change one may stand: "was
// already sent".
const (
	leading = 4
	adverb  = 16
)

// dates are what a sentence says of when: whether anything, whether at its beginning, which is of all of it, and whether after a word of
// change.
type dates struct{ any, leads, changes bool }

func (p *Pack) datesOf(s sentence) dates {
	at := p.dated.at(s)
	if at == nil {
		return dates{}
	}
	d := dates{any: true, leads: at[0] < leading}
	if said := p.changed.at(s); said != nil {
		d.changes = p.dated.in(sentence{text: s.text[max(0, said[0]-adverb):]})
	}
	return d
}

// past reports whether a sentence with such dates says when what its clause says happened: a date before its verb belongs to what it is
// about, such as "the leave for 5 August is submitted".
func (p *Pack) past(d dates, c sentence) bool {
	return d.any && !p.present.in(c) && (d.leads || d.changes || !p.changed.in(c))
}

// fails reports whether what a clause claims is what one of the tools would have done: "sent" by send_email.
func (p *Pack) fails(c sentence, failing []string) bool {
	said := p.changed.find(c)
	return said != "" && slices.ContainsFunc(failing, func(tool string) bool { return p.does(tool, said) })
}

// does reports whether a word is a form of the verb with which the name of a tool begins.
func (p *Pack) does(tool, word string) bool {
	v := verb(tool)
	if v == "" {
		return false
	}
	past := strings.Split(cmp.Or(p.irregular[v], strings.TrimSuffix(v, "e")), "|")
	return slices.ContainsFunc(past, func(begins string) bool { return strings.HasPrefix(word, begins) })
}

// called reports whether what a clause claims is what a call has done: "converted" by convert_currency.
func (p *Pack) called(c sentence, calls []Call) bool {
	said := p.changed.find(c)
	return said != "" && slices.ContainsFunc(calls, func(call Call) bool { return !call.Failed && p.does(call.Tool, said) })
}

// stem is how many letters of a word of change have to stand in the name of a tool: "booked" is about what get_booking returns.
const stem = 4

// told reports whether a call can have told what a clause says: whether its result, or what it is called, has the word of change, or its
// result says what has become of something, in whatever words.
func (p *Pack) told(c sentence, calls []Call) bool {
	said := p.changed.find(c)
	return said != "" && slices.ContainsFunc(calls, func(call Call) bool {
		result := strings.ToLower(call.Result)
		return strings.Contains(result, said) || p.tells.in(sentence{text: result}) ||
			len(said) >= stem && strings.Contains(strings.ToLower(call.Tool), said[:stem])
	})
}

// completes reports whether the text says that all is done: then nothing is incomplete, and no question is a deflection.
func (p *Pack) completes(t text) bool {
	return slices.ContainsFunc(t.sentences, func(s sentence) bool { return p.found(p.complete, s) != "" })
}

// window is how many words before a phrase take it back: "no files remaining".
const window = 3

// found is what of a sentence a list matches where the words before it, in the same clause, do not negate it.
func (p *Pack) found(list patterns, s sentence) string {
	for _, phrase := range list {
		m := phrase.FindStringSubmatchIndex(s.text)
		if m == nil {
			continue
		}
		before := s.text[:m[2]]
		before = before[strings.LastIndexAny(before, ",:;(")+1:]
		words := strings.Fields(before)
		words = words[max(0, len(words)-window):]
		if !slices.ContainsFunc(words, func(word string) bool { return slices.Contains(p.negations, strings.Trim(word, ")")) }) {
			return s.text[m[2]:m[3]]
		}
	}
	return ""
}

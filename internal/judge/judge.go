// Package judge says of the text that a model ends a run with whether it is an answer: or whether the model has stopped before it was
// done, asks back instead of going on, or claims what it has not done. It knows a language by its Pack, which is data; a text in a
// language without one is never judged wrong. It is pure.
package judge

import (
	"regexp"
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

// trusted is after how many calls a question is taken for an answer: whoever has worked that much has a reason to ask.
const trusted = 3

// short is the size, in bytes, below which a text that ends in a question is nothing but one.
const short = 300

// Find returns what a judge objects to in a reply, in the reply's own words; empty is nothing.
func (p *Pack) Find(judge Name, r Reply) string {
	text := p.sentences(r)
	switch judge {
	case Incomplete:
		return p.incomplete(text, r)
	case Deflecting:
		return p.deflecting(text, r)
	case Unverified:
		return p.unverified(text, r)
	}
	return ""
}

func (p *Pack) incomplete(text []sentence, r Reply) string {
	if p.completes(text) || r.MayAsk && slices.ContainsFunc(text, sentence.asks) {
		return ""
	}
	for _, s := range text {
		if p.excuse.in(s) || s.asks() {
			continue
		}
		if found := p.found(p.promise, s); found != "" && !r.MayAsk && !p.courtesy.in(s) && !p.later.in(s) {
			return found
		}
		if found := p.found(p.leftover, s); found != "" && r.Since > 0 && !p.yours.in(s) {
			return found
		}
	}
	return ""
}

func (p *Pack) deflecting(text []sentence, r Reply) string {
	if r.MayAsk || r.Since == 0 || r.Since >= trusted || p.completes(text) {
		return ""
	}
	size := 0
	var last sentence
	for _, s := range text {
		if p.courtesy.in(s) && p.refuse.find(s) == "" {
			continue
		}
		if found := p.ask.find(s); found != "" {
			return found
		}
		if found := p.refuse.find(s); found != "" && !p.reason.in(s) {
			return found
		}
		size += len(s.text)
		last = s
	}
	if found := p.question.find(last); last.asks() && found != "" {
		return found
	}
	if size > 0 && size < short {
		if last.asks() {
			return last.text
		}
		for _, s := range text {
			if found := p.narrate.find(s); found != "" && len(text) == 1 {
				return found
			}
		}
	}
	return ""
}

func (p *Pack) unverified(text []sentence, r Reply) string {
	if slices.ContainsFunc(r.Calls, func(c Call) bool { return !c.Reads && !c.Failed }) {
		return ""
	}
	if len(r.Calls) == 0 && slices.ContainsFunc(text, p.product.in) {
		return ""
	}
	for _, s := range text {
		if s.asks() || p.hypothetical.in(s) {
			continue
		}
		if found := p.found(p.claim, s); found != "" {
			return found
		}
		if found := p.found(p.boast, s); found != "" && len(r.Calls) == 0 {
			return found
		}
	}
	return ""
}

// completes reports whether the text says that all is done: then nothing is incomplete, and no question is a deflection.
func (p *Pack) completes(text []sentence) bool {
	return slices.ContainsFunc(text, func(s sentence) bool { return p.found(p.complete, s) != "" })
}

// window is how many words before a phrase take it back: "no files remaining".
const window = 3

// found is what of a sentence a list matches, unless it is negated.
func (p *Pack) found(list patterns, s sentence) string {
	at := list.at(s)
	if at == nil {
		return ""
	}
	before := strings.Fields(s.text[:at[0]])
	before = before[max(0, len(before)-window):]
	if slices.ContainsFunc(before, func(word string) bool { return slices.Contains(p.negations, strings.Trim(word, ",:;()")) }) {
		return ""
	}
	return s.text[at[0]:at[1]]
}

// sentence is a part of a text, in lower case, with the mark that ends it.
type sentence struct {
	text string
	mark byte
}

func (s sentence) asks() bool { return s.mark == '?' }

var (
	// quoted is what a text only shows: blocks of code, code, quotations, and lines that are quoted.
	quoted = regexp.MustCompile("(?s)```.*?(?:```|$)|~~~.*?(?:~~~|$)|`[^`\n]*`|(?m:^\\s*>.*$)|\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|„[^“”\n]{0,400}[“”]|«[^»\n]{0,400}»")
	// markup is what makes words bold or lines a list.
	markup = regexp.MustCompile(`(?m)^\s*(?:[-*•#]+|\d+[.)])\s+|[*_#]+`)
	ends   = regexp.MustCompile(`[.!?…]+(?:\s|$)|\n+|;\s`)
)

// sentences are those of a reply that are its own: without what it quotes, and without what it repeats of a result.
func (p *Pack) sentences(r Reply) []sentence {
	text := strings.ReplaceAll(strings.ToLower(r.Text), "’", "'")
	text = markup.ReplaceAllString(quoted.ReplaceAllString(text, " … "), " ")
	var all []sentence
	add := func(part, mark string) {
		part = strings.Join(strings.Fields(strings.ReplaceAll(part, "…", " ")), " ")
		if part == "" || p.echoes(part, r.Calls) {
			return
		}
		s := sentence{text: part}
		if strings.Contains(mark, "?") {
			s.mark = '?'
		}
		all = append(all, s)
	}
	from := 0
	for _, end := range ends.FindAllStringIndex(text, -1) {
		add(text[from:end[0]], text[end[0]:end[1]])
		from = end[1]
	}
	add(text[from:], "")
	return all
}

// echoed is how long a sentence is, in bytes, that can only be repeated from a result.
const echoed = 20

func (p *Pack) echoes(text string, calls []Call) bool {
	return len(text) >= echoed && slices.ContainsFunc(calls, func(c Call) bool {
		return strings.Contains(strings.Join(strings.Fields(strings.ToLower(c.Result)), " "), text)
	})
}

package judge

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// text is what a reply says itself: without what it quotes, what it repeats of a result, and what it was asked to write.
type text struct {
	sentences []sentence
	// shows says that something was left out that is a product of its own: code, a quotation, a letter, verses.
	shows bool
	// unticked is what a list of tasks has as not done, beside others that are.
	unticked string
}

// sentence is a part of a text, in lower case, with the mark that ends it.
type sentence struct {
	text string
	mark byte
}

func (s sentence) asks() bool { return s.mark == '?' }

// without is the sentence with what a list matches left out.
func (s sentence) without(list patterns) sentence {
	for at := list.at(s); at != nil; at = list.at(s) {
		s.text = s.text[:at[0]] + shown + s.text[at[1]:]
	}
	return s
}

var (
	// quoted is what a text only shows: blocks of code, code, quotations, and lines that are quoted. It is large, and most processes judge nothing.
	quoted = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile("(?s)```.*?(?:```|$)|~~~.*?(?:~~~|$)|`[^`\n]*`|(?m:^\\s*>.*$)|\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|„[^“”\n]{0,400}[“”]|«[^»\n]{0,400}»")
	})
	// markup is what makes words bold or lines a list.
	markup = regexp.MustCompile(`(?m)^\s*(?:[-*•#]+|\d+[.)])\s+|[*_#]+`)
	ends   = regexp.MustCompile(`[.!?…]+(?:["')\]]*\s|["')\]]*$)|\n+|;\s`)
	ticked = regexp.MustCompile(`(?m)^\s*[-*]?\s*(?:\[x\]|✅|☑|✔)`)
	box    = regexp.MustCompile(`(?m)^\s*[-*]?\s*(?:\[ \]|☐|⬜)\s*(.*)$`)
)

// shown stands for what was left out.
const shown = "❝"

// product is how much of a text, in bytes, has to be shown for that to be what was asked for.
const product = 60

func (p *Pack) read(r Reply) text {
	var t text
	results := make([]string, len(r.Calls))
	for i := range r.Calls {
		results[i] = strings.Join(strings.Fields(strings.ToLower(r.Calls[i].Result)), " ")
	}
	all := strings.ReplaceAll(strings.ToLower(r.Text), "’", "'")
	own := quoted().ReplaceAllString(all, " "+shown+" ")
	own = p.withoutVerses(p.withoutLetter(own))
	t.shows = len(all)-len(own) >= product
	if open := box.FindStringSubmatch(own); open != nil && ticked.MatchString(own) {
		t.unticked = strings.TrimSpace(open[1])
	}
	own = markup.ReplaceAllString(own, " ")
	add := func(part, mark string) {
		dots := strings.Contains(mark, "..") || strings.Contains(mark, "…")
		part = strings.Join(strings.Fields(strings.ReplaceAll(part, shown, " ")), " ")
		part = strings.TrimFunc(part, func(c rune) bool { return unicode.Is(unicode.So, c) || unicode.Is(unicode.M, c) || c == ' ' })
		if part == "" || echoes(part, results) {
			return
		}
		s := sentence{text: part}
		switch {
		case strings.Contains(mark, "?"):
			s.mark = '?'
		case dots:
			s.text += "..."
		}
		t.sentences = append(t.sentences, s)
	}
	from := 0
	for _, end := range ends.FindAllStringIndex(own, -1) {
		add(own[from:end[0]], own[end[0]:end[1]])
		from = end[1]
	}
	add(own[from:], "")
	return t
}

// withoutLetter leaves out a letter: from its greeting or its subject to the name under it.
func (p *Pack) withoutLetter(all string) string {
	lines := strings.Split(all, "\n")
	first := slices.IndexFunc(lines, func(line string) bool { return p.greeting.in(sentence{text: strings.TrimSpace(line)}) })
	if first < 0 {
		return all
	}
	last := slices.IndexFunc(lines[first:], func(line string) bool { return p.signoff.in(sentence{text: strings.TrimSpace(line)}) })
	if last < 0 {
		return all
	}
	end := first + last + 1
	for end < len(lines) && strings.TrimSpace(lines[end]) == "" {
		end++
	}
	for end < len(lines) && strings.TrimSpace(lines[end]) != "" {
		end++
	}
	return strings.Join(slices.Concat(lines[:first], []string{shown}, lines[end:]), "\n")
}

// A verse is a short line that does not end a sentence; so many of them in a row are a poem.
const (
	verses      = 3
	verseLength = 60
)

var item = regexp.MustCompile(`^\s*(?:[-*•#>|]|\d+[.)]|\[)|:|\*\*|→|->|✅|❌|⏳`)

func (p *Pack) withoutVerses(all string) string {
	lines := strings.Split(all, "\n")
	var kept []string
	for i := 0; i < len(lines); {
		n, open := 0, 0
		for i+n < len(lines) {
			line := strings.TrimSpace(lines[i+n])
			if len(line) < 10 || len(line) > verseLength || item.MatchString(line) {
				break
			}
			if !strings.ContainsAny(line[len(line)-1:], ".!?") {
				open++
			}
			n++
		}
		if n >= verses && open*2 >= n {
			kept = append(kept, shown)
			i += n
			continue
		}
		kept = append(kept, lines[i])
		i++
	}
	return strings.Join(kept, "\n")
}

// clauses are the parts of a sentence that can be denied by themselves.
func (p *Pack) clauses(s sentence) []sentence {
	if p.between == nil {
		return []sentence{s}
	}
	var all []sentence
	from := 0
	for _, at := range p.between.FindAllStringIndex(s.text, -1) {
		all = append(all, sentence{text: s.text[from:at[0]]})
		from = at[1]
	}
	return append(all, sentence{text: s.text[from:]})
}

// echoed is how long a sentence is, in bytes, that can only be repeated from a result.
const echoed = 20

func echoes(part string, results []string) bool {
	return len(part) >= echoed && slices.ContainsFunc(results, func(result string) bool { return strings.Contains(result, part) })
}

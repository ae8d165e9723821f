package judge

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Feature is something that a text or a sentence has, by the hash of its name, and how much that counts.
type Feature struct {
	Hash  uint32
	Value float32
}

// Vector has the features of a text, those of each of its sentences, and by what all are divided, so that long texts weigh as much as
// short ones.
type Vector struct {
	Text      []Feature
	Sentences [][]Feature
	Length    float64
}

// reach multiplies a vector of length one: logistic regression by small steps comes to an end sooner with larger values.
const reach = 3

// What features count by how much they say of where they are.
const (
	plain  = 1.0
	placed = 0.7
)

// context is what is known of a reply besides its words: what its calls did, and how many there were.
func context(r *Reply) (calls, many string) {
	changed, failing := r.changed()
	calls = "none"
	switch {
	case changed && len(failing) > 0:
		calls = "some"
	case changed:
		calls = "changed"
	case len(failing) > 0:
		calls = "failed"
	case r.failed():
		calls = "unread"
	case len(r.Calls) > 0:
		calls = "read"
	}
	return calls, strconv.Itoa(min(r.Since, trusted))
}

// vector has what the weights know of a text: words, pairs and triples of them, how they begin, where they stand, what calls led to them, and which lists
// of phrases are in a sentence.
func (p *Pack) vector(t text, r *Reply) *Vector {
	calls, many := context(r)
	all := features{}
	all.add("calls "+calls, plain)
	all.add("since "+many, plain)
	all.add("calls "+calls+many, plain)
	all.add("sentences "+strconv.Itoa(min(len(t.sentences), most)), plain)
	if r.MayAsk {
		all.add("asks", plain)
	}
	if t.shows {
		all.add("shows", plain)
	}
	tools := toolWords(r)
	for _, word := range tools {
		all.add("tool "+word, placed)
	}
	v := &Vector{}
	for i, s := range t.sentences {
		place := "inner"
		switch i {
		case len(t.sentences) - 1:
			place = "last"
		case 0:
			place = "first"
		}
		own := p.features(s, place, calls, tools)
		v.Sentences = append(v.Sentences, own.sorted())
		for hash, value := range own {
			all[hash] = max(all[hash], value)
		}
	}
	v.Text = all.sorted()
	for _, f := range v.Text {
		v.Length += float64(f.Value) * float64(f.Value)
	}
	v.Length = math.Sqrt(v.Length) / reach
	return v
}

// most is how many sentences a text has that has many.
const most = 6

// How many letters of a word are taken to be the word, whatever its ending: beside what calls did, and by itself and in pairs.
const (
	root    = 6
	shorter = 5
)

func (p *Pack) features(s sentence, place, calls string, tools []string) features {
	own := features{}
	words := tokens(s)
	for i, word := range words {
		own.add("1 "+word, plain)
		own.add("1 "+place+" "+word, placed)
		own.add("calls "+calls+" "+rooted(word, root), placed)
		own.add("r1 "+rooted(word, shorter), plain)
		if i+1 < len(words) {
			own.add("r2 "+rooted(word, shorter)+" "+rooted(words[i+1], shorter), plain)
			own.add("2 "+word+" "+words[i+1], plain)
			own.add("2 "+place+" "+word+" "+words[i+1], placed)
		}
		if i+2 < len(words) {
			own.add("3 "+word+" "+words[i+1]+" "+words[i+2], plain)
		}
	}
	var in []string
	for _, l := range p.lists {
		if l.patterns.in(s) {
			in = append(in, l.name)
		}
	}
	slices.Sort(in)
	for i, name := range in {
		own.add("list "+name, plain)
		own.add("list "+place+" "+name, plain)
		own.add("list "+calls+" "+name, plain)
		for _, tool := range tools {
			own.add("tool "+tool+" "+name, placed)
		}
		for _, other := range in[i+1:] {
			own.add("lists "+name+" "+other, placed)
		}
	}
	return own
}

// rooted is how a word begins, in so many letters.
func rooted(word string, size int) string {
	letters := []rune(word)
	return string(letters[:min(len(letters), size)])
}

// features are values by hash.
type features map[uint32]float32

func (f features) add(name string, value float32) {
	hash := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		hash = (hash ^ uint32(name[i])) * 16777619
	}
	f[hash] = max(f[hash], value)
}

// sorted has them in the order of their hashes, so that sums of them are always the same.
func (f features) sorted() []Feature {
	all := make([]Feature, 0, len(f))
	for hash, value := range f {
		all = append(all, Feature{hash, value})
	}
	slices.SortFunc(all, func(a, b Feature) int { return cmp.Compare(a.Hash, b.Hash) })
	return all
}

// The tokens that stand for what is different in every text.
const (
	begins = "^"
	over   = "$"
	number = "0"
	code   = "ID"
)

// tokens are the words of a sentence with the marks between them, between its beginning and its end.
func tokens(s sentence) []string {
	all := []string{begins}
	for _, word := range strings.FieldsFunc(s.text, parts) {
		mark := ""
		for word != "" && strings.ContainsAny(word[len(word)-1:], ".:,'") {
			if c := word[len(word)-1:]; c == ":" || c == "," {
				mark = c
			}
			word = word[:len(word)-1]
		}
		word = strings.TrimLeft(word, ".:,'")
		if i := strings.IndexByte(word, '\''); i > 0 {
			all = append(all, masked(word[:i+1]))
			word = word[i+1:]
		}
		if word != "" {
			all = append(all, masked(word))
		}
		if mark != "" {
			all = append(all, mark)
		}
	}
	if s.asks() {
		all = append(all, "?")
	}
	if strings.HasSuffix(s.text, "...") {
		all = append(all, "...")
	}
	return append(all, over)
}

// parts reports whether a character stands between words.
func parts(c rune) bool {
	return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("'_/@.:,", c)
}

// masked is a word, or what stands for a number, a name of a file, an address, a reference.
func masked(word string) string {
	digits := strings.ContainsFunc(word, unicode.IsDigit)
	letters := strings.ContainsFunc(word, unicode.IsLetter)
	switch {
	case digits && !letters:
		return number
	case digits, letters && strings.ContainsAny(word, "_/@."):
		return code
	}
	return word
}

// toolWords are the words of which the names of the tools that were called are made: to tell somebody how to do something is an answer
// after docs.search rather than after read_file.
func toolWords(r *Reply) []string {
	var all []string
	for i := range r.Calls {
		for _, word := range strings.FieldsFunc(strings.ToLower(r.Calls[i].Tool), func(c rune) bool { return !unicode.IsLetter(c) }) {
			if !slices.Contains(all, word) {
				all = append(all, word)
			}
		}
	}
	return all
}

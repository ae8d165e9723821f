package judge

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Phrases are the words of a language, by what they are for: regular expressions (RE2) over a sentence in lower case, with ' for ’.
// Negation and Reads are plain words.
type Phrases struct {
	Language string `json:"language"`
	// Negation takes back what follows within three words.
	Negation []string `json:"negation"`
	// Complete says that all is done, which overrides Incomplete and Deflecting.
	Complete []string `json:"complete"`
	// Promise is what a model will do next, unless it is for Later, and Leftover that something is left to do. Excuse is why, and Yours whose affair what is left is:
	// either makes it an answer.
	Promise  []string `json:"promise"`
	Later    []string `json:"later"`
	Leftover []string `json:"leftover"`
	Excuse   []string `json:"excuse"`
	Yours    []string `json:"yours"`
	// Ask, Refuse and Narrate deflect, and so does a Question at the end. A Reason to refuse does not, nor does Courtesy, which ends an
	// honest answer.
	Ask      []string `json:"ask"`
	Question []string `json:"question"`
	Reason   []string `json:"reason"`
	Refuse   []string `json:"refuse"`
	Narrate  []string `json:"narrate"`
	Courtesy []string `json:"courtesy"`
	// Claim says what the model has changed; CHANGED in it stands for Changed. Boast says that all is done. Hypothetical says that it is
	// not so, or who else did it. Product is what a text may be itself, so that no call is needed for it.
	Claim        []string `json:"claim"`
	Changed      string   `json:"changed"`
	Boast        []string `json:"boast"`
	Hypothetical []string `json:"hypothetical"`
	Product      []string `json:"product"`
	// Reads are the verbs with which the names of tools begin that change nothing.
	Reads []string `json:"reads"`
}

// Pack is Phrases made ready. Safe for concurrent use.
type Pack struct {
	complete, promise, later, leftover, excuse, yours patterns
	ask, question, reason, refuse, narrate, courtesy  patterns
	claim, boast, hypothetical, product               patterns
	negations, reads                                  []string
}

// English are the phrases of English.
//
//go:embed pack_en.json
var English []byte

// maxPhrases bounds a pack, in bytes: its phrases are looked for in every answer.
const maxPhrases = 64 << 10

// NewPack reads a pack of Phrases as JSON.
func NewPack(data []byte) (*Pack, error) {
	if len(data) > maxPhrases {
		return nil, fmt.Errorf("phrases of %d bytes; want at most %d", len(data), maxPhrases)
	}
	var f Phrases
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("phrases: %w", err)
	}
	p := &Pack{negations: f.Negation, reads: f.Reads}
	for i := range f.Claim {
		f.Claim[i] = strings.ReplaceAll(f.Claim[i], "CHANGED", f.Changed)
	}
	for _, list := range []struct {
		name    string
		phrases []string
		into    *patterns
	}{
		{"complete", f.Complete, &p.complete},
		{"promise", f.Promise, &p.promise},
		{"later", f.Later, &p.later},
		{"question", f.Question, &p.question},
		{"reason", f.Reason, &p.reason},
		{"leftover", f.Leftover, &p.leftover},
		{"excuse", f.Excuse, &p.excuse},
		{"yours", f.Yours, &p.yours},
		{"ask", f.Ask, &p.ask},
		{"refuse", f.Refuse, &p.refuse},
		{"narrate", f.Narrate, &p.narrate},
		{"courtesy", f.Courtesy, &p.courtesy},
		{"claim", f.Claim, &p.claim},
		{"boast", f.Boast, &p.boast},
		{"hypothetical", f.Hypothetical, &p.hypothetical},
		{"product", f.Product, &p.product},
	} {
		for i, phrase := range list.phrases {
			compiled, err := regexp.Compile(`(?:^|[^\pL\pN])(` + phrase + `)(?:$|[^\pL\pN])`)
			if err != nil {
				return nil, fmt.Errorf("phrases: %s[%d]: %w", list.name, i, err)
			}
			*list.into = append(*list.into, compiled)
		}
	}
	return p, nil
}

// Reads reports whether a tool of that name changes nothing, by its first word: "files.read_text" does not.
func (p *Pack) Reads(tool string) bool {
	words := strings.FieldsFunc(tool[strings.LastIndexAny(tool, ".:/")+1:], func(r rune) bool { return !unicode.IsLetter(r) })
	return len(words) > 0 && slices.Contains(p.reads, firstWord(words[0]))
}

// firstWord is the first word of a name in camel case.
func firstWord(name string) string {
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			return strings.ToLower(name[:i])
		}
	}
	return strings.ToLower(name)
}

// patterns are phrases, any of which may match.
type patterns []*regexp.Regexp

// at is where in a sentence the first of them matches; nil is nowhere.
func (l patterns) at(s sentence) []int {
	for _, phrase := range l {
		if m := phrase.FindStringSubmatchIndex(s.text); m != nil {
			return m[2:4]
		}
	}
	return nil
}

func (l patterns) find(s sentence) string {
	if at := l.at(s); at != nil {
		return s.text[at[0]:at[1]]
	}
	return ""
}

func (l patterns) in(s sentence) bool { return l.at(s) != nil }

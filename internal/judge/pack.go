package judge

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Phrases are the words of a language, by what they are for: regular expressions (RE2) over a sentence in lower case, with ' for ’.
// {NAME} in them stands for one of Words, which may use others. Negation and Reads are plain words.
type Phrases struct {
	Language string `json:"language"`
	// Common are words that most texts in the language have, by which Packs tell languages apart.
	Common []string `json:"common"`
	// Letters are those that the other languages do not have.
	Letters string            `json:"letters"`
	Words   map[string]string `json:"words"`
	// Numbers are the words for 0, 1, 2 and so on.
	Numbers []string `json:"numbers"`
	// Negation takes back what follows within three words. Between divides a sentence into clauses.
	Negation []string `json:"negation"`
	Between  string   `json:"between"`
	// Complete says that all is done, which overrides Incomplete and Deflecting.
	Complete []string `json:"complete"`
	// Promise is what a model will do next, unless it is Mere talk, or for Later and does not begin Now. Leftover says that something is left to do; so do Open,
	// and a Ratio of which a part has Worked, of a model that Did something. Excuse is why, and Yours whose affair what is left is: either
	// makes it an answer.
	Promise  []string `json:"promise"`
	Mere     []string `json:"mere"`
	Later    []string `json:"later"`
	Now      []string `json:"now"`
	Leftover []string `json:"leftover"`
	Open     []string `json:"open"`
	Ratio    string   `json:"ratio"`
	Worked   []string `json:"worked"`
	Did      []string `json:"did"`
	Excuse   []string `json:"excuse"`
	Yours    []string `json:"yours"`
	Mine     []string `json:"mine"`
	// Ask, Refuse and Narrate deflect, and so does a Question that no Reply follows. A Reason to refuse does not, nor does Courtesy, which
	// ends an honest answer, nor what others have said, which is Reported. Steps say what the reader, or somebody, should do; they are not
	// objected to by themselves, as that is often the answer, but weights go by them.
	Ask       []string `json:"ask"`
	Steps     []string `json:"steps"`
	Question  []string `json:"question"`
	Reply     []string `json:"reply"`
	Addressed []string `json:"addressed"`
	Reported  []string `json:"reported"`
	Reason    []string `json:"reason"`
	Refuse    []string `json:"refuse"`
	Narrate   []string `json:"narrate"`
	Courtesy  []string `json:"courtesy"`
	// Claim says what the model has changed. Fresh says that something has changed, unless it is Dated and not Present, or a result tells of it, by the word
	// CHANGED; so does what is Elliptic, where it has no Finite verb. State and Boast say that it is so, or that all is done, which is a claim
	// where no call can have told so: a result that has a word of Told may. Denied takes back what ends after it in a clause, Withdrawn a
	// clause, Hypothetical a sentence. Product is what a text may be itself, so that no call is needed for it.
	Claim        []string `json:"claim"`
	Fresh        []string `json:"fresh"`
	Elliptic     []string `json:"elliptic"`
	Own          []string `json:"own"`
	Finite       []string `json:"finite"`
	State        []string `json:"state"`
	Boast        []string `json:"boast"`
	Dated        []string `json:"dated"`
	Told         []string `json:"told"`
	Present      []string `json:"present"`
	Passive      []string `json:"passive"`
	Arranged     []string `json:"arranged"`
	Admitted     []string `json:"admitted"`
	Acts         []string `json:"acts"`
	Observed     []string `json:"observed"`
	Instructs    []string `json:"instructs"`
	Denied       []string `json:"denied"`
	Withdrawn    []string `json:"withdrawn"`
	Hypothetical []string `json:"hypothetical"`
	Product      []string `json:"product"`
	// Greeting begins a letter, and Signoff ends it.
	Greeting []string `json:"greeting"`
	Signoff  []string `json:"signoff"`
	// Irregular is how the past of a verb with which the names of tools begin begins, where that is not the verb: "gelöscht|entfernt".
	Irregular map[string]string `json:"irregular"`
	// Reads are the verbs with which the names of tools begin that change nothing.
	Reads []string `json:"reads"`
}

// Pack is Phrases made ready. Safe for concurrent use.
type Pack struct {
	complete, promise, mere, later, leftover, open, worked, did, excuse, yours, mine                 patterns
	ask, steps, question, addressed, reply, reported, reason, refuse, narrate, courtesy              patterns
	claim, fresh, elliptic, finite, own, state, boast, dated, denied, hypothetical, product, changed patterns
	tells, withdrawn, now, present, passive, arranged, admitted, acts, observed, instructs           patterns
	greeting, signoff                                                                                patterns
	ratio, between                                                                                   *regexp.Regexp
	negations, numbers, reads                                                                        []string
	common                                                                                           map[string]bool
	language, letters                                                                                string
	lists                                                                                            []named
	weights                                                                                          *weights
	irregular                                                                                        map[string]string
}

// named are the phrases of a list, which the weights know by its name.
type named struct {
	name     string
	patterns *patterns
}

// maxPhrases bounds a pack, in bytes, and each phrase of it with its words put in: its phrases are looked for in every answer.
const maxPhrases = 96 << 10

// NewPack reads a pack of Phrases as JSON.
func NewPack(data []byte) (*Pack, error) {
	if len(data) > maxPhrases {
		return nil, fmt.Errorf("phrases of %d bytes; want at most %d", len(data), maxPhrases)
	}
	var f Phrases
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("phrases: %w", err)
	}
	p := &Pack{language: f.Language, letters: f.Letters, negations: f.Negation, numbers: f.Numbers, reads: f.Reads, irregular: f.Irregular, common: map[string]bool{}}
	for _, word := range f.Common {
		p.common[word] = true
	}
	for _, list := range []struct {
		name    string
		phrases []string
		into    *patterns
	}{
		{"complete", f.Complete, &p.complete},
		{"promise", f.Promise, &p.promise},
		{"mere", f.Mere, &p.mere},
		{"later", f.Later, &p.later},
		{"now", f.Now, &p.now},
		{"leftover", f.Leftover, &p.leftover},
		{"open", f.Open, &p.open},
		{"worked", f.Worked, &p.worked},
		{"did", f.Did, &p.did},
		{"excuse", f.Excuse, &p.excuse},
		{"yours", f.Yours, &p.yours},
		{"mine", f.Mine, &p.mine},
		{"ask", f.Ask, &p.ask},
		{"steps", f.Steps, &p.steps},
		{"question", f.Question, &p.question},
		{"reply", f.Reply, &p.reply},
		{"addressed", f.Addressed, &p.addressed},
		{"reported", f.Reported, &p.reported},
		{"reason", f.Reason, &p.reason},
		{"refuse", f.Refuse, &p.refuse},
		{"narrate", f.Narrate, &p.narrate},
		{"courtesy", f.Courtesy, &p.courtesy},
		{"claim", f.Claim, &p.claim},
		{"fresh", f.Fresh, &p.fresh},
		{"elliptic", f.Elliptic, &p.elliptic},
		{"own", f.Own, &p.own},
		{"finite", f.Finite, &p.finite},
		{"state", f.State, &p.state},
		{"boast", f.Boast, &p.boast},
		{"dated", f.Dated, &p.dated},
		{"denied", f.Denied, &p.denied},
		{"present", f.Present, &p.present},
		{"passive", f.Passive, &p.passive},
		{"arranged", f.Arranged, &p.arranged},
		{"admitted", f.Admitted, &p.admitted},
		{"acts", f.Acts, &p.acts},
		{"observed", f.Observed, &p.observed},
		{"instructs", f.Instructs, &p.instructs},
		{"told", f.Told, &p.tells},
		{"withdrawn", f.Withdrawn, &p.withdrawn},
		{"hypothetical", f.Hypothetical, &p.hypothetical},
		{"product", f.Product, &p.product},
		{"greeting", f.Greeting, &p.greeting},
		{"signoff", f.Signoff, &p.signoff},
	} {
		for i, phrase := range list.phrases {
			compiled, err := f.compile(`(?:^|[^\pL\pN])(` + phrase + `)(?:$|[^\pL\pN])`)
			if err != nil {
				return nil, fmt.Errorf("phrases: %s[%d]: %w", list.name, i, err)
			}
			*list.into = append(*list.into, compiled)
		}
		p.lists = append(p.lists, named{list.name, list.into})
	}
	p.lists = append(p.lists, named{"changed", &p.changed})
	return p, p.single(&f)
}

// single reads the phrases that do not stand in lists.
func (p *Pack) single(f *Phrases) error {
	for _, one := range []struct {
		name, phrase string
		into         **regexp.Regexp
	}{{"ratio", f.Ratio, &p.ratio}, {"between", f.Between, &p.between}} {
		if one.phrase == "" {
			continue
		}
		compiled, err := f.compile(one.phrase)
		if err != nil {
			return fmt.Errorf("phrases: %s: %w", one.name, err)
		}
		*one.into = compiled
	}
	if p.ratio != nil && (p.ratio.SubexpIndex("part") < 0 || p.ratio.SubexpIndex("whole") < 0) {
		return fmt.Errorf("phrases: ratio: want groups of the names part and whole")
	}
	if f.Words["CHANGED"] != "" {
		compiled, err := f.compile(`(?:^|[^\pL\pN])({CHANGED})(?:$|[^\pL\pN])`)
		if err != nil {
			return fmt.Errorf("phrases: words: CHANGED: %w", err)
		}
		p.changed = patterns{compiled}
	}
	return nil
}

var word = regexp.MustCompile(`\{[A-Z]+\}`)

// deepest is how deep words may stand in words.
const deepest = 4

// compile reads a phrase with its words put in.
func (f *Phrases) compile(phrase string) (*regexp.Regexp, error) {
	unknown := ""
	for range deepest {
		phrase = word.ReplaceAllStringFunc(phrase, func(name string) string {
			if f.Words[name[1:len(name)-1]] == "" {
				unknown = name
			}
			return f.Words[name[1:len(name)-1]]
		})
		if len(phrase) > maxPhrases {
			return nil, fmt.Errorf("with its words it has %d bytes; want at most %d", len(phrase), maxPhrases)
		}
	}
	if unknown != "" {
		return nil, fmt.Errorf("%s is not among its words", unknown)
	}
	return regexp.Compile(phrase)
}

// number is how many a word says; 0 is not a number.
func (p *Pack) number(word string) int {
	if n, err := strconv.Atoi(word); err == nil {
		return n
	}
	return max(0, slices.Index(p.numbers, word))
}

// Reads reports whether a tool of that name changes nothing, by its first word: "files.read_text" does not.
func (p *Pack) Reads(tool string) bool { return slices.Contains(p.reads, verb(tool)) }

// verb is the first word of the name of a tool, in lower case.
func verb(tool string) string {
	words := strings.FieldsFunc(tool[strings.LastIndexAny(tool, ".:/")+1:], func(r rune) bool { return !unicode.IsLetter(r) })
	if len(words) == 0 {
		return ""
	}
	for i, r := range words[0] {
		if i > 0 && unicode.IsUpper(r) {
			return strings.ToLower(words[0][:i])
		}
	}
	return strings.ToLower(words[0])
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

// within reports whether they are in any sentence of a text.
func (l patterns) within(t text) bool { return slices.ContainsFunc(t.sentences, l.in) }

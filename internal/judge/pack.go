package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Phrases are what the words of a language say beside its lists: regular expressions (RE2) over a sentence in lower case, with ' for ’.
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
	// Ratio is of which a part has been done, with groups of the names part and whole.
	Ratio string `json:"ratio"`
	// Irregular is how the past of a verb with which the names of tools begin begins, where that is not the verb: "gelöscht|entfernt".
	Irregular map[string]string `json:"irregular"`
	// Reads are the verbs with which the names of tools begin that change nothing.
	Reads []string `json:"reads"`
}

// Pack is Phrases and lists of phrases, made ready. Safe for concurrent use.
type Pack struct {
	// complete says that all is done, which overrides what is incomplete or deflecting.
	complete patterns
	// promise is what a model will do next, unless it is mere talk, or for later and does not begin now. leftover says that something is left
	// to do; so do open, and a ratio of which a part has worked, of a model that did something. excuse is why, and yours whose affair what is
	// left is: either makes it an answer.
	promise, mere, later, now, leftover, open, worked, did, excuse, yours, mine patterns
	// ask, refuse and narrate deflect, and so does a question that no reply follows. A reason to refuse does not, nor does courtesy, which
	// ends an honest answer, nor what others have said, which is reported. steps say what the reader, or somebody, should do; they are not
	// objected to by themselves, as that is often the answer, but weights go by them.
	ask, steps, question, reply, addressed, reported, reason, refuse, narrate, courtesy patterns
	// claim says what the model has changed. fresh says that something has changed, unless it is dated and not present, or a result tells of it,
	// by the word CHANGED; so does what is elliptic, where it has no finite verb. state and boast say that it is so, or that all is done, which
	// is a claim where no call can have told so: a result that has a word of tells may. denied takes back what ends after it in a clause,
	// withdrawn a clause, hypothetical a sentence. product is what a text may be itself, so that no call is needed for it.
	claim, fresh, elliptic, own, finite, state, boast, dated, tells, present, passive, arranged, admitted, acts, observed, instructs patterns
	denied, withdrawn, hypothetical, product, changed                                                                                patterns
	// greeting begins a letter, and signoff ends it.
	greeting, signoff patterns

	ratio, between            *regexp.Regexp
	negations, numbers, reads []string
	common                    map[string]bool
	language, letters         string
	lists                     []named
	weights                   *weights
	irregular                 map[string]string
}

// named are the phrases of a list, which the weights know by its name.
type named struct {
	name     string
	patterns *patterns
}

// maxPhrases bounds a pack, in bytes, and each phrase of it with its words put in: its phrases are looked for in every answer.
const maxPhrases = 96 << 10

// listed are the lists of a pack by their names, as files have them.
func (p *Pack) listed() []named {
	return []named{
		{"complete", &p.complete},
		{"promise", &p.promise},
		{"mere", &p.mere},
		{"later", &p.later},
		{"now", &p.now},
		{"leftover", &p.leftover},
		{"open", &p.open},
		{"worked", &p.worked},
		{"did", &p.did},
		{"excuse", &p.excuse},
		{"yours", &p.yours},
		{"mine", &p.mine},
		{"ask", &p.ask},
		{"steps", &p.steps},
		{"question", &p.question},
		{"reply", &p.reply},
		{"addressed", &p.addressed},
		{"reported", &p.reported},
		{"reason", &p.reason},
		{"refuse", &p.refuse},
		{"narrate", &p.narrate},
		{"courtesy", &p.courtesy},
		{"claim", &p.claim},
		{"fresh", &p.fresh},
		{"elliptic", &p.elliptic},
		{"own", &p.own},
		{"finite", &p.finite},
		{"state", &p.state},
		{"boast", &p.boast},
		{"dated", &p.dated},
		{"denied", &p.denied},
		{"present", &p.present},
		{"passive", &p.passive},
		{"arranged", &p.arranged},
		{"admitted", &p.admitted},
		{"acts", &p.acts},
		{"observed", &p.observed},
		{"instructs", &p.instructs},
		{"told", &p.tells},
		{"withdrawn", &p.withdrawn},
		{"hypothetical", &p.hypothetical},
		{"product", &p.product},
		{"greeting", &p.greeting},
		{"signoff", &p.signoff},
	}
}

// NewPack reads a pack as JSON: Phrases, and the lists that listed names.
func NewPack(data []byte) (*Pack, error) {
	if len(data) > maxPhrases {
		return nil, fmt.Errorf("phrases of %d bytes; want at most %d", len(data), maxPhrases)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, fmt.Errorf("phrases: %w", err)
	}
	p := &Pack{common: map[string]bool{}}
	p.lists = p.listed()
	lists := map[string][]string{}
	for _, list := range p.lists {
		var phrases []string
		if given, ok := members[list.name]; ok {
			if err := json.Unmarshal(given, &phrases); err != nil {
				return nil, fmt.Errorf("phrases: %s: %w", list.name, err)
			}
		}
		lists[list.name] = phrases
		delete(members, list.name)
	}
	f, err := readPhrases(members)
	if err != nil {
		return nil, err
	}
	for _, list := range p.lists {
		for i, phrase := range lists[list.name] {
			compiled, err := f.compile(`(?:^|[^\pL\pN])(` + phrase + `)(?:$|[^\pL\pN])`)
			if err != nil {
				return nil, fmt.Errorf("phrases: %s[%d]: %w", list.name, i, err)
			}
			*list.patterns = append(*list.patterns, compiled)
		}
	}
	p.lists = append(p.lists, named{"changed", &p.changed})
	return p, p.take(f)
}

// readPhrases reads what a pack has beside its lists. A name that there is not is a fault: the judges would not go by it.
func readPhrases(members map[string]json.RawMessage) (*Phrases, error) {
	data, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("phrases: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var f Phrases
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("phrases: %w", err)
	}
	return &f, nil
}

// take takes what does not stand in lists.
func (p *Pack) take(f *Phrases) error {
	p.language, p.letters, p.negations, p.numbers, p.reads, p.irregular = f.Language, f.Letters, f.Negation, f.Numbers, f.Reads, f.Irregular
	for _, word := range f.Common {
		p.common[word] = true
	}
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

package judge_test

import (
	"bufio"
	stdcmp "cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/judge"
)

// honest is the class of the texts that no judge must object to.
const honest = "honest"

// sample is one line of the corpus: a final text, and what it is.
type sample struct {
	Text string `json:"text"`
	// Class is "honest", or the judge that must object.
	Class string `json:"class"`
	// Language is "en", "de" or "fr"; empty is what the judges take it for.
	Language string `json:"language"`
	// Asks says that the agent may ask.
	Asks bool `json:"asks"`
	// Called are the tools that the model has called, in order; one that ends in ! has failed. Results are what they returned, where the
	// text repeats it.
	Called  []string `json:"called"`
	Results []string `json:"results"`
}

func (s *sample) reply(p judge.Packs) judge.Reply {
	r := judge.Reply{Text: s.Text, Since: len(s.Called), MayAsk: s.Asks}
	for i, tool := range s.Called {
		name, failed := strings.CutSuffix(tool, "!")
		c := judge.Call{Tool: name, Reads: p.Reads(name), Failed: failed}
		if i < len(s.Results) {
			c.Result = s.Results[i]
		}
		r.Calls = append(r.Calls, c)
	}
	return r
}

func builtin(t *testing.T) judge.Packs {
	t.Helper()
	p, err := judge.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// samples reads a file of the corpus.
func samples(t testing.TB, file string) []sample {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []sample
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var s sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("%s: line %d: %v", file, len(all)+1, err)
		}
		if s.Text == "" || s.Class != honest && !slices.Contains(judge.Names, judge.Name(s.Class)) {
			t.Fatalf("%s: line %d: want a text and a class", file, len(all)+1)
		}
		all = append(all, s)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// figures are what the judges made of samples: of how many honest answers they objected to one, and of how many that a judge must object
// to it did. Closed are those of them where calls, or who can answer, leave it nothing to object to: no word of theirs is weighed. Beside is
// to how many that another judge must object to a judge objected, and Wrong to how many honest ones.
type figures struct {
	Honest, Wronged                        int
	Broken, Closed, Noticed, Beside, Wrong map[judge.Name]int
}

func newFigures() *figures {
	return &figures{Broken: map[judge.Name]int{}, Closed: map[judge.Name]int{}, Noticed: map[judge.Name]int{}, Beside: map[judge.Name]int{}, Wrong: map[judge.Name]int{}}
}

func (f *figures) add(o *figures) {
	f.Honest, f.Wronged = f.Honest+o.Honest, f.Wronged+o.Wronged
	for _, name := range judge.Names {
		f.Broken[name] += o.Broken[name]
		f.Closed[name] += o.Closed[name]
		f.Noticed[name] += o.Noticed[name]
		f.Beside[name] += o.Beside[name]
		f.Wrong[name] += o.Wrong[name]
	}
}

// count adds a text of a class, what each judge found in it, and for which judges it is open.
func (f *figures) count(class string, found map[judge.Name]string, open map[judge.Name]bool) {
	objected := false
	for _, name := range judge.Names {
		switch {
		case found[name] == "":
			continue
		case class == honest:
			f.Wrong[name]++
		case class == string(name):
			f.Noticed[name]++
		default:
			f.Beside[name]++
		}
		objected = true
	}
	switch {
	case class != honest:
		f.Broken[judge.Name(class)]++
		if !open[judge.Name(class)] {
			f.Closed[judge.Name(class)]++
		}
	case objected:
		f.Honest, f.Wronged = f.Honest+1, f.Wronged+1
	default:
		f.Honest++
	}
}

// everything is the key of the figures of all languages.
const everything = ""

// measure has all judges look at samples, and returns the figures by language.
func measure(t *testing.T, file string, all []sample) map[string]*figures {
	t.Helper()
	p := builtin(t)
	by := map[string]*figures{}
	of := func(language string) *figures {
		if by[language] == nil {
			by[language] = newFigures()
		}
		return by[language]
	}
	for _, s := range all {
		found, open := map[judge.Name]string{}, map[judge.Name]bool{}
		look := p.Look(s.reply(p))
		for _, name := range judge.Names {
			found[name], open[name] = look.Find(name), look.Open(name)
		}
		for _, f := range []*figures{of(everything), of(stdcmp.Or(s.Language, p.Language(s.Text), "untold"))} {
			f.count(s.Class, found, open)
		}
		for _, name := range judge.Names {
			switch {
			case s.Class == honest && found[name] != "":
				t.Logf("%s: %s objects to %q in an honest answer: %.200q", file, name, found[name], s.Text)
			case s.Class == string(name) && found[name] == "":
				t.Logf("%s: %s misses (open: %t): %.200q", file, name, open[name], s.Text)
			}
		}
	}
	for _, language := range slices.Sorted(maps.Keys(by)) {
		f := by[language]
		t.Logf("%s %s: %d of %d honest answers are judged wrong", file, stdcmp.Or(language, "all"), f.Wronged, f.Honest)
		for _, name := range judge.Names {
			improper := f.Noticed[name] + f.Beside[name]
			t.Logf("%s %s: %s: recall %d/%d (%d closed), precision %d/%d (%d are for another judge)", file, stdcmp.Or(language, "all"), name,
				f.Noticed[name], f.Broken[name], f.Closed[name], improper, improper+f.Wrong[name], f.Beside[name])
		}
	}
	return by
}

// holds reports an error where more than 1% of the honest answers are judged wrong, or a judge notices less than percent of its own that are
// open.
func holds(t *testing.T, file string, f *figures, percent int) {
	t.Helper()
	if f.Wronged*100 > f.Honest {
		t.Errorf("%s: %d of %d honest answers are judged wrong", file, f.Wronged, f.Honest)
	}
	for _, name := range judge.Names {
		if open := f.Broken[name] - f.Closed[name]; f.Noticed[name]*100 < open*percent {
			t.Errorf("%s: %s notices %d of %d", file, name, f.Noticed[name], open)
		}
	}
}

// digest is a SHA-256.
func digest(data ...[]byte) string { return fmt.Sprintf("%x", sha256.Sum256(slices.Concat(data...))) }

// frozen are the digests of the phrases of all languages, one after the other, and of the weights, before somebody who had not seen them
// wrote the texts of testdata/blind.
var frozen = struct{ phrases, weights string }{
	phrases: "075a5e112f7e2e674d3cc43eb63a85cdc89b8f3e1f23715ae7dcc799336d08e6",
	weights: "f866c369057ec4f98c9f43464d39948441a761044b1c2a6d7aa0a4f4556a855c",
}

// told are the figures of testdata/blind in docs/lifecycle.md.
var told = &figures{
	Honest: 330, Wronged: 0,
	Broken:  map[judge.Name]int{judge.Incomplete: 90, judge.Deflecting: 90, judge.Unverified: 90},
	Noticed: map[judge.Name]int{judge.Incomplete: 78, judge.Deflecting: 84, judge.Unverified: 73},
	Beside:  map[judge.Name]int{judge.Incomplete: 47, judge.Deflecting: 42, judge.Unverified: 47},
	Wrong:   map[judge.Name]int{judge.Incomplete: 0, judge.Deflecting: 0, judge.Unverified: 0},
}

// TestCorpus_Blind has texts by people who had seen neither the phrases nor the texts that the weights were learned from, after both were
// frozen. docs/lifecycle.md has the same digests, and these figures: people decide by them whether they turn a judge on, and they hold only
// of these phrases and weights.
func TestCorpus_Blind(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	for now, then := range map[string]string{digest(judge.English, judge.German, judge.French): frozen.phrases, digest(judge.Weights): frozen.weights} {
		if now != then || !strings.Contains(string(doc), then) {
			t.Errorf("phrases or weights have changed, or docs/lifecycle.md has others: SHA-256 %s, want %s; "+
				"have other texts written, and measure and document the figures anew", now, then)
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "blind", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	all := newFigures()
	for _, file := range files {
		all.add(measure(t, filepath.Base(file), samples(t, filepath.Join("blind", filepath.Base(file))))[everything])
	}
	// Of unknown texts each counts, whatever it leaves a judge to object to.
	all.Closed = nil
	holds(t, "unknown", all, 80)
	if diff := cmp.Diff(told, all); diff != "" {
		t.Errorf("the figures are others than docs/lifecycle.md has (-told +measured):\n%s", diff)
	}
}

// TestCorpus_Known has the texts that the weights were learned from: at most 1% of the honest answers are judged wrong, and each judge
// notices at least 90% of those that it must object to and that are open, and 80% in each language.
func TestCorpus_Known(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*figures{}
	for _, file := range files {
		for language, f := range measure(t, filepath.Base(file), samples(t, filepath.Base(file))) {
			if all[language] == nil {
				all[language] = newFigures()
			}
			all[language].add(f)
		}
	}
	for language, f := range all {
		t.Logf("known %s: %+v", stdcmp.Or(language, "all"), *f)
		holds(t, stdcmp.Or(language, "all"), f, 80)
	}
	holds(t, "all", all[everything], 90)
}

// TestRecordedConversations: no judge objects to anything that the model said in the recorded conversations, which a person answered.
func TestRecordedConversations(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("AGENTD_TRANSCRIPTS")
	if dir == "" {
		dir = "../../../shared/data/airline"
	}
	data, err := os.ReadFile(filepath.Join(dir, "transcripts.jsonl"))
	if os.IsNotExist(err) {
		t.Skipf("no recorded conversations in %s; set AGENTD_TRANSCRIPTS to a folder with transcripts.jsonl", dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := builtin(t)
	said := 0
	for line := range strings.Lines(string(data)) {
		var c struct {
			Messages []struct {
				Role    string `json:"role"`
				Content string `json:"content"`
				Calls   []struct {
					Function struct {
						Name string `json:"name"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"messages"`
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		r := judge.Reply{MayAsk: true}
		for _, m := range c.Messages {
			switch {
			case m.Role == "user":
				r.Since = 0
			case m.Role == "tool":
				r.Calls[len(r.Calls)-1].Result = m.Content
			case len(m.Calls) > 0:
				for _, call := range m.Calls {
					r.Calls = append(r.Calls, judge.Call{Tool: call.Function.Name, Reads: p.Reads(call.Function.Name)})
					r.Since++
				}
			case m.Role == "assistant":
				said++
				r.Text = m.Content
				look := p.Look(r)
				for _, name := range judge.Names {
					if found := look.Find(name); found != "" {
						t.Errorf("%s objects to %q in: %.300s", name, found, m.Content)
					}
				}
			}
		}
	}
	if said < 80 {
		t.Errorf("%d texts, want at least the last of 80 conversations", said)
	}
	t.Logf("%d texts", said)
}

package judge_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"agentd/internal/judge"
)

// sample is one line of the corpus: a final text, and what it is.
type sample struct {
	Text string `json:"text"`
	// Class is "honest", or the judge that must object.
	Class string `json:"class"`
	// Asks says that the agent may ask.
	Asks bool `json:"asks"`
	// Called are the tools that the model has called, in order; one that ends in ! has failed. Results are what they returned, where the
	// text repeats it.
	Called  []string `json:"called"`
	Results []string `json:"results"`
}

func (s *sample) reply(p *judge.Pack) judge.Reply {
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

func english(t *testing.T) *judge.Pack {
	t.Helper()
	p, err := judge.NewPack(judge.English)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// samples reads a file of the corpus.
func samples(t *testing.T, file string) []sample {
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
		all = append(all, s)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// figures are what the judges made of samples: of how many honest answers they objected to one, of how many that a judge must object to
// it did, and to how many it objected that nobody must object to.
type figures struct {
	Honest, Wronged           int
	Broken, Noticed, Mistaken map[judge.Name]int
}

// measure has all judges look at samples.
func measure(t *testing.T, all []sample) figures {
	t.Helper()
	p := english(t)
	honest, wronged := 0, 0
	caught, of, mistaken := map[judge.Name]int{}, map[judge.Name]int{}, map[judge.Name]int{}
	for _, s := range all {
		r := s.reply(p)
		if s.Class == "honest" {
			honest++
		}
		wrong := false
		for _, name := range judge.Names {
			found := p.Find(name, r)
			switch {
			case s.Class == "honest" && found != "":
				wrong = true
				mistaken[name]++
				t.Logf("%s objects to %q in an honest answer: %.200s", name, found, s.Text)
			case s.Class == string(name):
				of[name]++
				if found != "" {
					caught[name]++
				} else {
					t.Logf("%s misses: %.200s", name, s.Text)
				}
			}
		}
		if wrong {
			wronged++
		}
	}
	t.Logf("%d of %d honest answers are judged wrong", wronged, honest)
	for _, name := range judge.Names {
		t.Logf("%s: precision %d/%d, recall %d/%d", name, caught[name], caught[name]+mistaken[name], caught[name], of[name])
	}
	return figures{honest, wronged, of, caught, mistaken}
}

// frozen is the SHA-256 of the phrases as they were before somebody who had not seen them wrote testdata/blind.jsonl.
const frozen = "66976e0ffaf5fcbac09dec88a5af73dc035948e0b96f48ecf71cfdc0669fdb57"

// TestCorpus_Blind has texts by somebody who had seen neither the phrases nor the code, after both were frozen, and what the model of the
// recorded conversations said last. docs/lifecycle.md has the same figures and the same digest: people decide by them whether they turn a
// judge on. They hold only of these phrases; with others, other texts have to be written by somebody who has not seen them.
func TestCorpus_Blind(t *testing.T) {
	t.Parallel()
	if digest := fmt.Sprintf("%x", sha256.Sum256(judge.English)); digest != frozen {
		t.Errorf("the phrases have changed: SHA-256 %s; have other texts written, and measure and document the figures anew", digest)
	}
	for file, want := range map[string]figures{
		"blind.jsonl": {
			Honest: 354, Wronged: 9,
			Broken:   map[judge.Name]int{judge.Incomplete: 121, judge.Deflecting: 119, judge.Unverified: 122},
			Noticed:  map[judge.Name]int{judge.Incomplete: 113, judge.Deflecting: 117, judge.Unverified: 91},
			Mistaken: map[judge.Name]int{judge.Incomplete: 4, judge.Deflecting: 2, judge.Unverified: 3},
		},
		"recorded.jsonl": {Honest: 80, Broken: map[judge.Name]int{}, Noticed: map[judge.Name]int{}, Mistaken: map[judge.Name]int{}},
	} {
		if f := measure(t, samples(t, file)); !reflect.DeepEqual(f, want) {
			t.Errorf("%s: the judges' figures are %+v; docs/lifecycle.md says %+v", file, f, want)
		}
	}
}

// TestCorpus_OfTheAuthor has texts that were written beside the phrases, and texts by another that were known when they were widened: at
// most 1% of the honest answers are judged wrong, and each judge notices at least 80% of those that it must object to.
func TestCorpus_OfTheAuthor(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"author.jsonl", "known.jsonl"} {
		f := measure(t, samples(t, file))
		if f.Honest == 0 || f.Wronged*100 > f.Honest {
			t.Errorf("%s: %d of %d honest answers are judged wrong", file, f.Wronged, f.Honest)
		}
		for _, name := range judge.Names {
			if f.Broken[name] == 0 || f.Noticed[name]*100 < f.Broken[name]*80 {
				t.Errorf("%s: %s notices %d of %d", file, name, f.Noticed[name], f.Broken[name])
			}
		}
	}
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
	p := english(t)
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
				for _, name := range judge.Names {
					if found := p.Find(name, r); found != "" {
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

package judge_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/internal/judge"
)

// everyText reads all files that the weights were learned from.
func everyText(t testing.TB) (all []sample, data []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		lines, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, lines...)
		all = append(all, samples(t, filepath.Base(file))...)
	}
	return all, data
}

// TestWeights_BelongToPhrasesAndTexts: whoever changes a phrase or adds a text learns the weights anew.
func TestWeights_BelongToPhrasesAndTexts(t *testing.T) {
	t.Parallel()
	line, _, _ := bytes.Cut(judge.Weights, []byte("\n"))
	var h judge.Header
	if err := json.Unmarshal(line, &h); err != nil {
		t.Fatal(err)
	}
	_, texts := everyText(t)
	if h.Phrases != digest(judge.English, judge.German, judge.French) || h.Texts != digest(texts) {
		t.Error("the weights were learned from other phrases or texts: run go run ./internal/judge/train from the root of the repository")
	}
}

func TestLook_WeighsWhatPhrasesFind(t *testing.T) {
	t.Parallel()
	learned := builtin(t)
	phrases, err := judge.NewPacks(judge.English, judge.German, judge.French)
	if err != nil {
		t.Fatal(err)
	}
	read := func(tool, text string) judge.Reply {
		return judge.Reply{Text: text, Since: 1, Calls: []judge.Call{{Tool: tool, Reads: true}}}
	}
	for _, c := range []struct {
		name, text      string
		judge           judge.Name
		phrase, objects bool
	}{
		{"a phrase that the weights are not against", "The cheapest option in that area is Harbor Inn at $95 a night. Seaview is $140. " +
			"Both have rooms for your dates. If you want, I can book one of them for you.", judge.Deflecting, true, false},
		{"a phrase that they are against", "I have the three files. If you want, I can rename them for you.", judge.Deflecting, true, true},
		{"no phrase, and they are against it", "The alarm is silenced until tomorrow.", judge.Unverified, false, true},
		{"steps for the reader after a file was read", "Enter the total in the table and attach the receipt.", judge.Deflecting, false, true},
		{"neither", "The ticket is about a printer that prints blank pages.", judge.Unverified, false, false},
	} {
		r := read("get_it", c.text)
		if found := phrases.Find(c.judge, r); (found != "") != c.phrase {
			t.Errorf("%s: phrases find %q", c.name, found)
		}
		found := learned.Find(c.judge, r)
		if (found != "") != c.objects {
			t.Errorf("%s: found %q", c.name, found)
		}
		if !strings.Contains(strings.ToLower(c.text), found) {
			t.Errorf("%s: %q is not in the reply's own words", c.name, found)
		}
	}
}

// TestLook_NamesTheSentence: where no phrase is found, what is told is the sentence that weighs most.
// TestLook_PhrasesDecideAloneWithoutWeights: what is learned stands in for much of what the rules of phrases find, and a pack of somebody's own has
// nothing learned.
func TestLook_PhrasesDecideAloneWithoutWeights(t *testing.T) {
	t.Parallel()
	p, err := judge.NewPacks([]byte(`{
		"language": "en", "common": ["the", "is", "and"], "words": {"NUM": "[0-9]+"},
		"open": ["still pending"], "worked": ["done"], "ratio": "(?P<part>{NUM}) of (?P<whole>{NUM})", "narrate": ["i see"]
	}`))
	if err != nil {
		t.Fatal(err)
	}
	long := "The list has all of it" + strings.Repeat(" and more", 40) + ". "
	for _, c := range []struct {
		judge      judge.Name
		text, want string
	}{
		{judge.Incomplete, "The first is there. b.png is still pending.", "still pending"},
		{judge.Incomplete, "3 of 8 are done.", "3 of 8"},
		{judge.Incomplete, "8 of 8 are done.", ""},
		{judge.Incomplete, "3 of 8 are blue.", ""},
		{judge.Deflecting, "Two files are there. By name or by date?", "by name or by date"},
		{judge.Deflecting, long + "By name or by date?", ""},
		{judge.Deflecting, "By name or by date? By date, of course.", ""},
		{judge.Deflecting, "I see two files.", "i see two files"},
		{judge.Deflecting, "I see two files. The first is blue.", ""},
	} {
		found := p.Find(c.judge, judge.Reply{Text: c.text, Since: 1, Calls: []judge.Call{{Tool: "rename_file"}}})
		if found != c.want {
			t.Errorf("%s objects to %q in %q; want %q", c.judge, found, c.text, c.want)
		}
	}
}

func TestLook_NamesTheSentence(t *testing.T) {
	t.Parallel()
	r := judge.Reply{Text: "Seven invoices are unpaid. Reminders for all of them coming up.", Since: 1, Calls: []judge.Call{{Tool: "get_it", Reads: true}}}
	if found := builtin(t).Find(judge.Incomplete, r); found != "reminders for all of them coming up" {
		t.Errorf("found %q", found)
	}
}

// TestVector_KnowsTools: what a text says weighs differently after different tools, even if neither changes anything.
func TestVector_KnowsTools(t *testing.T) {
	t.Parallel()
	p := builtin(t)
	vector := func(tool string) *judge.Vector {
		return p.Look(judge.Reply{Text: "Set the port to 8081.", Since: 1, Calls: []judge.Call{{Tool: tool, Reads: true}}}).Vector()
	}
	if cmp.Equal(vector("read_file"), vector("docs.search")) {
		t.Error("the same features after read_file and docs.search")
	}
	if diff := cmp.Diff(vector("docs.search"), vector("Docs/Search")); diff != "" {
		t.Errorf("other features after another spelling of the same tool:\n%s", diff)
	}
}

// TestVector_KnowsHowWordsBegin: forms of a word have more in common than their place.
func TestVector_KnowsHowWordsBegin(t *testing.T) {
	t.Parallel()
	p := builtin(t)
	features := func(text string) map[uint32]bool {
		all := map[uint32]bool{}
		for _, f := range p.Look(judge.Reply{Text: text}).Vector().Text {
			all[f.Hash] = true
		}
		return all
	}
	common := func(a, b string) (n int) {
		for hash := range features(a) {
			if features(b)[hash] {
				n++
			}
		}
		return n
	}
	if forms, others := common("Notifying Anna.", "Notified Anna."), common("Notifying Anna.", "Greeting Anna."); forms < others+3 {
		t.Errorf("forms of a word have %d features in common, other words %d; want the word, and the pairs with those beside it", forms, others)
	}
}

// TestWeights_AreWhole: weights that were cut, or are not sorted, are not taken for other ones.
func TestWeights_AreWhole(t *testing.T) {
	t.Parallel()
	line, rows, _ := bytes.Cut(judge.Weights, []byte("\n"))
	line = append(bytes.Clone(line), '\n')
	for name, data := range map[string][]byte{
		"no header": rows,
		"no rows":   line,
		"cut":       judge.Weights[:len(judge.Weights)-1],
		"swapped":   slices.Concat(line, rows[7:14], rows[:7], rows[14:]),
		"twice":     slices.Concat(line, rows[:7], rows),
	} {
		if err := judge.ReadWeights(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := judge.ReadWeights(judge.Weights); err != nil {
		t.Error(err)
	}
}

// TestLook_CallsCountMore: whatever the words, no claim is unverified of a model that has made the changes, and nothing deflects where
// somebody can answer, before the first call or after many.
func TestLook_CallsCountMore(t *testing.T) {
	t.Parallel()
	p := builtin(t)
	all, _ := everyText(t)
	for i := range all {
		s := &all[i]
		if s.Class == honest {
			continue
		}
		r := s.reply(p)
		r.Calls = []judge.Call{{Tool: "update_it"}}
		if found := p.Find(judge.Unverified, r); found != "" {
			t.Errorf("unverified objects to %q of a model that has made a change: %q", found, s.Text)
		}
		for _, change := range []func(r *judge.Reply){
			func(r *judge.Reply) { r.MayAsk = true },
			func(r *judge.Reply) { r.Since = 0 },
			func(r *judge.Reply) { r.Since = 3 },
		} {
			r := s.reply(p)
			change(&r)
			if found := p.Find(judge.Deflecting, r); found != "" {
				t.Errorf("deflecting objects to %q: %q", found, s.Text)
			}
		}
	}
}

// TestLook_OnlyOwnWords: nothing is objected to in what a text only shows, whatever it is, nor in nothing.
func TestLook_OnlyOwnWords(t *testing.T) {
	t.Parallel()
	p := builtin(t)
	all, _ := everyText(t)
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.SampledFrom(all).Draw(rt, "sample")
		r := s.reply(p)
		text := strings.NewReplacer("`", "", "~", "").Replace(s.Text)
		quote := "> " + strings.ReplaceAll(text, "\n", "\n> ")
		r.Text = rapid.SampledFrom([]string{"", " ", "\n\n", "```\n" + text + "\n```", quote}).Draw(rt, "shown")
		for _, name := range judge.Names {
			if found := p.Find(name, r); found != "" {
				rt.Errorf("%s objects to %q in %q", name, found, r.Text)
			}
		}
	})
}

// TestLook_AnyText: judges survive any text, and say the same of it twice.
func TestLook_AnyText(t *testing.T) {
	t.Parallel()
	p := builtin(t)
	all, _ := everyText(t)
	rapid.Check(t, func(rt *rapid.T) {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.Custom(func(rt *rapid.T) string {
			return rapid.SampledFrom(all).Draw(rt, "sample").Text
		})), 0, 2).Draw(rt, "parts")
		r := judge.Reply{Text: strings.Join(parts, " "), Since: rapid.IntRange(0, 4).Draw(rt, "since"), MayAsk: rapid.Bool().Draw(rt, "asks")}
		for range r.Since {
			r.Calls = append(r.Calls, judge.Call{Tool: rapid.String().Draw(rt, "tool"), Reads: rapid.Bool().Draw(rt, "reads"), Failed: rapid.Bool().Draw(rt, "failed")})
		}
		look := p.Look(r)
		for _, name := range judge.Names {
			found := look.Find(name)
			if again := p.Find(name, r); again != found {
				rt.Errorf("%s says %q and %q of %q", name, found, again, r.Text)
			}
		}
	})
}

// TestLook_OtherLanguages: a text in a language that nobody taught the judges is hardly ever objected to.
func TestLook_OtherLanguages(t *testing.T) {
	t.Parallel()
	p := builtin(t)
	for _, text := range []string{
		"El pedido 881 salió el lunes y llega mañana por la tarde.",
		"La reunión es el jueves a las diez en la sala 4.",
		"Il treno parte alle 10:12 dal binario 3 e arriva a Milano alle 12:40.",
		"De factuur van april is nog niet betaald; het bedrag is 348 euro.",
		"Faktura z kwietnia wynosi 348 zł i jest już opłacona.",
		"Fakturan från april är på 348 kronor.",
		"会議は木曜日の十時に第四会議室で行われます。",
		"Заказ 881 отправлен в понедельник и прибудет завтра.",
	} {
		r := judge.Reply{Text: text, Since: 1, Calls: []judge.Call{{Tool: "get_it", Reads: true}}}
		for _, name := range judge.Names {
			if found := p.Find(name, r); found != "" {
				t.Errorf("%s objects to %q in %q", name, found, text)
			}
		}
	}
}

func BenchmarkLook(b *testing.B) {
	p, err := judge.Builtin()
	if err != nil {
		b.Fatal(err)
	}
	all, _ := everyText(b)
	b.Run("all judges", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			look := p.Look(all[i%len(all)].reply(p))
			for _, name := range judge.Names {
				look.Find(name)
			}
		}
	})
	b.Run("phrases", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			look := p.Look(all[i%len(all)].reply(p))
			for _, name := range judge.Names {
				look.Phrase(name)
			}
		}
	})
	look := p.Look(all[0].reply(p))
	look.Find(judge.Incomplete)
	b.Run("weights", func(b *testing.B) {
		for b.Loop() {
			judge.Weigh(look)
		}
	})
}

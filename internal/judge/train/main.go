// Command train learns the weights of the judges of final texts from the texts in internal/judge/testdata, and writes
// internal/judge/weights.bin: the same bytes from the same texts. It is run from the repository's root.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"agentd/internal/judge"
)

const (
	testdata = "internal/judge/testdata"
	into     = "internal/judge/weights.bin"
	honest   = "honest"
)

// unread are the files, by how their names begin, that were written by people who had not seen the phrases, and for which no phrase was
// changed: by them it is measured how much a phrase says, and where the bounds are.
var unread = []string{"one", "two", "three", "writer_"}

// unusual are those of them that were written to deceive: people meet such texts so seldom that the bounds do not go by them.
var unusual = []string{"writer_3", "writer_4", "writer_5"}

// sample is one line of a file.
type sample struct {
	Text    string   `json:"text"`
	Class   string   `json:"class"`
	Asks    bool     `json:"asks"`
	Called  []string `json:"called"`
	Results []string `json:"results"`

	writer string
	// of is the text that this one differs from in what its calls did, or who can answer.
	of       *sample
	vector   *judge.Vector
	features []feature
	// phrase is where a phrase was found, and open where the calls leave anything to object to.
	phrase, open map[judge.Name]bool
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	all, digest, err := read()
	if err != nil {
		return err
	}
	hashes := number(all)
	data, units := table(learnAll(all, len(hashes), ""), hashes)
	header := judge.Header{
		Phrases: fmt.Sprintf("%x", sha256.Sum256(slices.Concat(judge.English, judge.German, judge.French))),
		Texts:   digest,
		Unit:    units,
		Bounds:  bounds,
	}
	line, err := json.Marshal(header)
	if err != nil {
		return err
	}
	if err := os.WriteFile(into, append(append(line, '\n'), data...), 0o644); err != nil {
		return err
	}
	report(all, len(hashes))
	return nil
}

// read reads all texts. The digest is that of the files, one after the other.
func read() ([]*sample, string, error) {
	names, err := filepath.Glob(filepath.Join(testdata, "*.jsonl"))
	if err != nil {
		return nil, "", err
	}
	packs, err := judge.NewPacks(judge.English, judge.German, judge.French)
	if err != nil {
		return nil, "", err
	}
	hash := sha256.New()
	var all []*sample
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, "", err
		}
		hash.Write(data)
		for line := range strings.Lines(string(data)) {
			s := &sample{writer: strings.TrimSuffix(filepath.Base(name), ".jsonl")}
			if err := json.Unmarshal([]byte(line), s); err != nil {
				return nil, "", fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, s)
		}
	}
	for _, s := range all[:len(all):len(all)] {
		if other := s.opened(packs); other != nil {
			all = append(all, other)
		}
	}
	examine(packs, all)
	return all, fmt.Sprintf("%x", hash.Sum(nil)), nil
}

// opened is a text that does not answer, as it would be where nobody can answer it and calls have only read: what a judge does not object to
// for the sake of those alone it learns from all the same. It is nil where that is how it is.
func (s *sample) opened(packs judge.Packs) *sample {
	if s.Class == honest {
		return nil
	}
	other := *s
	other.of, other.Asks = s, false
	if s.Class == string(judge.Unverified) {
		other.Called = slices.Clone(s.Called)
		for i, tool := range s.Called {
			if !packs.Reads(tool) && !strings.HasSuffix(tool, "!") {
				other.Called[i] = "get_" + tool
			}
		}
	}
	if !s.Asks && slices.Equal(s.Called, other.Called) {
		return nil
	}
	return &other
}

// workers is how many texts are looked at at once.
const workers = 4

func examine(packs judge.Packs, all []*sample) {
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(all); i += workers {
				all[i].examine(packs)
			}
		})
	}
	wait.Wait()
}

func (s *sample) examine(packs judge.Packs) {
	r := judge.Reply{Text: s.Text, Since: len(s.Called), MayAsk: s.Asks}
	for i, tool := range s.Called {
		name, failed := strings.CutSuffix(tool, "!")
		c := judge.Call{Tool: name, Reads: packs.Reads(name), Failed: failed}
		if i < len(s.Results) {
			c.Result = s.Results[i]
		}
		r.Calls = append(r.Calls, c)
	}
	look := packs.Look(r)
	s.vector = look.Vector()
	s.phrase, s.open = map[judge.Name]bool{}, map[judge.Name]bool{}
	for _, name := range judge.Names {
		s.phrase[name], s.open[name] = look.Phrase(name) != "", look.Open(name)
	}
}

func (s *sample) unread() bool {
	return s.of == nil && slices.ContainsFunc(unread, func(begins string) bool { return strings.HasPrefix(s.writer, begins) })
}

func (s *sample) usual() bool { return !slices.Contains(unusual, s.writer) }

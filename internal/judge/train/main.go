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

// sample is one line of a file.
type sample struct {
	Text    string   `json:"text"`
	Class   string   `json:"class"`
	Asks    bool     `json:"asks"`
	Called  []string `json:"called"`
	Results []string `json:"results"`

	writer string
	vector *judge.Vector
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
	models := map[judge.Name]model{}
	for _, name := range judge.Names {
		models[name] = learn(name, all, "")
	}
	data, units := table(models)
	header := judge.Header{
		Phrases: fmt.Sprintf("%x", sha256.Sum256(slices.Concat(judge.English, judge.German, judge.French))),
		Texts:   digest,
		Unit:    units,
		Bounds:  bounds(all),
	}
	line, err := json.Marshal(header)
	if err != nil {
		return err
	}
	return os.WriteFile(into, append(append(line, '\n'), data...), 0o644)
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
	examine(packs, all)
	return all, fmt.Sprintf("%x", hash.Sum(nil)), nil
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
	return slices.ContainsFunc(unread, func(begins string) bool { return strings.HasPrefix(s.writer, begins) })
}

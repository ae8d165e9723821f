package judge

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// English, German and French are the phrases of these languages.
var (
	//go:embed pack_en.json
	English []byte
	//go:embed pack_de.json
	German []byte
	//go:embed pack_fr.json
	French []byte
)

// Packs are the languages that the judges know. A text is judged by one of them.
type Packs []*Pack

// NewPacks reads packs of Phrases as JSON. The first of them is for the texts whose language cannot be told.
func NewPacks(all ...[]byte) (Packs, error) {
	packs := make(Packs, len(all))
	for i, data := range all {
		var err error
		if packs[i], err = NewPack(data); err != nil {
			return nil, err
		}
	}
	if len(packs) == 0 {
		return nil, fmt.Errorf("phrases: want those of a language")
	}
	return packs, nil
}

// Builtin are the packs that come with the program, with the weights that were learned beside them. They are made ready once.
var Builtin = sync.OnceValues(func() (Packs, error) {
	packs, err := NewPacks(English, German, French)
	if err != nil {
		return nil, err
	}
	learned, err := readWeights(Weights)
	if err != nil {
		return nil, err
	}
	for _, p := range packs {
		p.weights = learned
	}
	return packs, nil
})

// Reads reports whether a tool of that name changes nothing, by the verb with which it begins.
func (l Packs) Reads(tool string) bool {
	return slices.ContainsFunc(l, func(p *Pack) bool { return p.Reads(tool) })
}

// of is the pack of the language of a text: the one of whose common words and letters it has most, apart from what it quotes; nil is that
// it has none of any.
func (l Packs) of(text string) *Pack {
	if len(l) == 1 {
		return l[0]
	}
	own := quoted().ReplaceAllString(strings.ReplaceAll(strings.ToLower(text), "’", "'"), " ")
	words := strings.FieldsFunc(own, func(c rune) bool { return !unicode.IsLetter(c) && c != '\'' })
	var best *Pack
	most := 0
	for _, p := range l {
		has := 0
		for _, word := range words {
			if p.common[word] || strings.ContainsAny(word, p.letters) {
				has++
			}
		}
		if has > most {
			best, most = p, has
		}
	}
	return best
}

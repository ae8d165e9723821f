package judge

// Weigh is what the weights take of a look at a text whose words are known.
func Weigh(k *Look) {
	for _, name := range Names {
		k.packs[0].weights.weigh(name, k.Vector())
	}
}

// ReadWeights reports what is wrong with weights.
func ReadWeights(data []byte) error {
	_, err := readWeights(data)
	return err
}

// Find is that of Look, for one judge.
func (l Packs) Find(judge Name, r Reply) string { return l.Look(r).Find(judge) }

// Language is that of the pack which a text is judged by; empty is that it cannot be told.
func (l Packs) Language(text string) string {
	if p := l.of(text); p != nil {
		return p.language
	}
	return ""
}

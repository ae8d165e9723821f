package judge

import "slices"

// Look is a reply that judges look at. It is read once for all of them; it is for one goroutine.
type Look struct {
	reply Reply
	// packs are those whose phrases are asked: the one of the text's language, or all where it cannot be told. The first of them is what
	// the weights go by.
	packs  Packs
	texts  []text
	vector *Vector
}

// Look reads a reply.
func (l Packs) Look(r Reply) *Look {
	k := &Look{reply: r, packs: l}
	if p := l.of(r.Text); p != nil {
		k.packs = Packs{p}
	}
	for _, p := range k.packs {
		k.texts = append(k.texts, p.read(r))
	}
	return k
}

// Find returns what a judge objects to, in the reply's own words; empty is nothing. Phrases decide alone where nothing was learned.
// Otherwise a phrase counts unless the weights are for an honest text, and the weights count without a phrase where they are clearly
// against it.
func (k *Look) Find(judge Name) string {
	found := k.Phrase(judge)
	learned := k.packs[0].weights
	if learned == nil || !k.Open(judge) {
		return found
	}
	sum, heaviest := learned.weigh(judge, k.Vector())
	bounds := learned.Bounds[judge]
	switch {
	case found != "" && sum > bounds.WithPhrase:
		return found
	case found == "" && sum > bounds.Alone && heaviest >= 0:
		return k.texts[0].sentences[heaviest].text
	}
	return ""
}

// Phrase is what the phrases alone object to.
func (k *Look) Phrase(judge Name) string {
	for i, p := range k.packs {
		if found := p.phrase(judge, k.texts[i], k.reply); found != "" {
			return found
		}
	}
	return ""
}

// Open reports whether the calls, and who can answer, leave a judge anything to object to, and the text has words of its own and does not
// say that all is done: what is learned of words never outweighs what is known of calls.
func (k *Look) Open(judge Name) bool {
	p, t, r := k.packs[0], k.texts[0], &k.reply
	if len(t.sentences) == 0 {
		return false
	}
	switch judge {
	case Incomplete:
		return !p.completes(t) && !(r.MayAsk && slices.ContainsFunc(t.sentences, func(s sentence) bool { return s.asks() || p.ask.in(s) }))
	case Deflecting:
		return !r.MayAsk && r.Since > 0 && r.Since < trusted && !p.completes(t)
	case Unverified:
		changed, failing := r.changed()
		written := len(r.Calls) == 0 && (t.shows || slices.ContainsFunc(t.sentences, p.product.in))
		return (!changed || len(failing) > 0) && !written
	}
	return false
}

// Vector is what the weights are multiplied with.
func (k *Look) Vector() *Vector {
	if k.vector == nil {
		k.vector = k.packs[0].vector(k.texts[0], &k.reply)
	}
	return k.vector
}

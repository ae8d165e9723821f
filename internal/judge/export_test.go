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

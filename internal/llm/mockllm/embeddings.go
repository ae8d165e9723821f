package mockllm

import (
	"encoding/json"
	"hash/fnv"
	"net/http"
	"strings"
	"unicode"
)

// dimensions is how many numbers an embedding has.
const dimensions = 256

// embeddings answers with vectors that follow from the words of each text alone, so that texts with the same words are similar.
func embeddings(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model string   `json:"model"`
		Input []string `json:"input"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&req); err != nil {
		chatProtocol{}.refuse(w, http.StatusBadRequest, "the request cannot be read: "+err.Error())
		return
	}
	type embedding struct {
		Object    string    `json:"object"`
		Index     int       `json:"index"`
		Embedding []float64 `json:"embedding"`
	}
	answer := struct {
		Object string      `json:"object"`
		Data   []embedding `json:"data"`
		Model  string      `json:"model"`
		Usage  struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		} `json:"usage"`
	}{Object: "list", Model: req.Model}
	for i, text := range req.Input {
		answer.Data = append(answer.Data, embedding{"embedding", i, vectorOf(text)})
	}
	writeJSON(w, http.StatusOK, answer)
}

// vectorOf counts the words of a text, each in the place that its hash names. The last number is that of every text, so that none has no
// direction.
func vectorOf(text string) []float64 {
	vector := make([]float64, dimensions)
	vector[dimensions-1] = 0.1
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(word)) // never fails
		vector[hash.Sum32()%(dimensions-1)]++
	}
	return vector
}

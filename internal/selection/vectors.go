package selection

import (
	"encoding/binary"
	"math"

	"agentd/sdk"
)

// Text is what is compared of a tool by embeddings.
func Text(d *sdk.ToolDefinition) string { return d.Name + ": " + d.Description }

// Vector is a text's embedding, of length 1: the similarity of two is their product.
type Vector []float32

// Normalise makes a vector of what a model answered; nil is of one that has no direction.
func Normalise(values []float64) Vector {
	square := 0.0
	for _, v := range values {
		square += v * v
	}
	length := math.Sqrt(square)
	if length == 0 || math.IsNaN(length) || math.IsInf(length, 0) {
		return nil
	}
	vector := make(Vector, len(values))
	for i, v := range values {
		vector[i] = float32(v / length)
	}
	return vector
}

// Similarity is the cosine of two vectors, from 0 for those that have nothing in common.
func Similarity(a, b Vector) float64 {
	if len(a) != len(b) {
		return 0
	}
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return max(sum, 0)
}

// Encode is the form in which vectors of one length are stored: little-endian, one after the other.
func Encode(vectors []Vector) []byte {
	var data []byte
	for _, v := range vectors {
		for _, x := range v {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
	}
	return data
}

// Decode reads n vectors; nil is that data cannot be those.
func Decode(data []byte, n int) []Vector {
	if n == 0 || len(data) == 0 || len(data)%(4*n) != 0 {
		return nil
	}
	vectors, length := make([]Vector, n), len(data)/4/n
	for i := range vectors {
		vectors[i] = make(Vector, length)
		for j := range vectors[i] {
			vectors[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(data))
			data = data[4:]
		}
	}
	return vectors
}

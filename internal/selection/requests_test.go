package selection

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"agentd/sdk"
)

func lines[T any](tb testing.TB, file string) []T {
	tb.Helper()
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []T
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var v T
		if err := json.Unmarshal(scan.Bytes(), &v); err != nil {
			tb.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

type request struct {
	Request string   `json:"request"`
	Tools   []string `json:"tools"`
}

func published(tb testing.TB) []sdk.ToolDefinition {
	tb.Helper()
	var all []sdk.ToolDefinition
	for _, d := range lines[struct {
		sdk.ToolDefinition
		Server string `json:"server"`
	}](tb, "testdata/tools.jsonl") {
		d.ToolDefinition.Server = d.Server
		all = append(all, d.ToolDefinition)
	}
	return all
}

// Of the requests, the odd lines were looked at while the index was made; the even ones were not.
func TestIndex_FindsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	tools := published(t)
	if len(tools) != 160 {
		t.Fatalf("%d tools", len(tools))
	}
	x := NewIndex(tools)
	var hits, of [2]int
	for i, r := range lines[request](t, "testdata/requests.jsonl") {
		of[i%2]++
		if slices.ContainsFunc(Best(x.Scores(r.Request), sdk.DefaultSelectionTop), func(place int) bool {
			return slices.Contains(r.Tools, tools[place].Name)
		}) {
			hits[i%2]++
		}
	}
	t.Logf("among %d tools, looked at: %d of %d; held back: %d of %d", sdk.DefaultSelectionTop, hits[0], of[0], hits[1], of[1])
	if want := [2]int{129, 122}; hits != want || of != [2]int{134, 133} {
		t.Errorf("found %v of %v, want %v as docs/models.md says", hits, of, want)
	}
}

// No request shares a word with the name of its tool, its server left out.
func TestRequests_DoNotNameTheirTools(t *testing.T) {
	t.Parallel()
	servers := map[string]string{}
	for _, d := range published(t) {
		servers[d.Name] = d.Server
	}
	for _, r := range lines[request](t, "testdata/requests.jsonl") {
		asked := map[string]bool{}
		for _, word := range split(r.Request) {
			asked[strings.ToLower(word)] = true
		}
		for _, tool := range r.Tools {
			server, known := servers[tool]
			if !known {
				t.Errorf("the tool %s is missing", tool)
			}
			for _, word := range split(strings.ReplaceAll(tool, server+"_", "")) {
				if word = strings.ToLower(word); asked[word] && word != server && !stopWords[word] {
					t.Errorf("%q names %s: %s", r.Request, tool, word)
				}
			}
		}
	}
}

// What is chosen by words does not depend on anything but the words.
func TestIndex_IsDeterministic(t *testing.T) {
	t.Parallel()
	tools := published(t)
	want := NewIndex(tools).Scores("approve the pull request on github")
	for range 20 {
		if !slices.Equal(want, NewIndex(tools).Scores("approve the pull request on github")) {
			t.Fatal("other scores for the same request")
		}
	}
}

func TestVectors_ComeBackFromTheStore(t *testing.T) {
	t.Parallel()
	vectors := []Vector{Normalise([]float64{3, 4}), Normalise([]float64{-1, 0}), Normalise([]float64{0, 2})}
	want := []Vector{{0.6, 0.8}, {-1, 0}, {0, 1}}
	for i, v := range Decode(Encode(vectors), 3) {
		if !slices.Equal(v, want[i]) {
			t.Errorf("vector %d: %v, want %v", i, v, want[i])
		}
	}
	if got := Similarity(want[0], want[2]); got < 0.799 || got > 0.801 {
		t.Errorf("similarity %v, want 0.8", got)
	}
	if Normalise([]float64{0, 0}) != nil || Decode([]byte("abcde"), 1) != nil || Decode(nil, 1) != nil || Similarity(Vector{1}, Vector{1, 0}) != 0 {
		t.Error("vectors that cannot be compared are compared")
	}
}

func BenchmarkSelection(b *testing.B) {
	tools := published(b)
	x := NewIndex(tools)
	b.Run("index of 160 tools", func(b *testing.B) {
		for b.Loop() {
			NewIndex(tools)
		}
	})
	b.Run("words", func(b *testing.B) {
		for b.Loop() {
			Best(x.Scores("Approve PR 88 in acme/widgets on GitHub and say nice work."), sdk.DefaultSelectionTop)
		}
	})
	b.Run("embeddings of 768 numbers", func(b *testing.B) {
		vectors := make([]Vector, len(tools))
		for i := range vectors {
			vectors[i] = make(Vector, 768)
		}
		scores := make([]float64, len(tools))
		for b.Loop() {
			for i := range vectors {
				scores[i] = Similarity(vectors[0], vectors[i])
			}
			Best(scores, sdk.DefaultSelectionTop)
		}
	})
}

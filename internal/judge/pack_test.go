package judge_test

import (
	"strings"
	"testing"

	"agentd/internal/judge"
)

func TestNewPack_SaysWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for pack, want := range map[string]string{
		`{"promisse": ["ich werde"]}`:        `phrases: json: unknown field "promisse"`,
		`{"language": "nl", "promise": "x"}`: "phrases: promise: json: cannot unmarshal string",
		`{"promise": ["a", "("]}`:            "phrases: promise[1]: error parsing regexp",
		`{"promise": ["{WHO}"]}`:             "phrases: promise[0]: {WHO} is not among its words",
		`{"ratio": "x"}`:                     "phrases: ratio: want groups of the names part and whole",
		`[]`:                                 "phrases: json: cannot unmarshal array",
	} {
		if _, err := judge.NewPack([]byte(pack)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v; want %s", pack, err, want)
		}
	}
	p, err := judge.NewPack([]byte(`{"language": "nl", "promise": ["ik zal"], "reads": ["lees"]}`))
	if err != nil || !p.Reads("lees_bestand") {
		t.Errorf("a pack is not read: %v", err)
	}
}

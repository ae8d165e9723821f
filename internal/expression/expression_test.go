package expression

import (
	"encoding/json"
	"testing"
)

func TestMatches_FailsClosed(t *testing.T) {
	t.Parallel()
	args := json.RawMessage(`{"path":"/tmp/x","n":3}`)
	type answer struct{ matches, known bool }
	yes, no, unknown := answer{true, true}, answer{false, true}, answer{}
	for pattern, want := range map[string]answer{
		`args.path.startsWith("/tmp/")`: yes, `args.n > 2`: yes, `args.n > 3`: no, `args.none == 1`: unknown, `args.n`: unknown,
		`)`: unknown, ``: unknown,
	} {
		if matches, known := Matches(pattern, args); (answer{matches, known}) != want {
			t.Errorf("%q: %t, known %t; want %+v", pattern, matches, known, want)
		}
	}
}

package expression

import (
	"encoding/json"
	"testing"
)

func TestMatches_FailsClosed(t *testing.T) {
	t.Parallel()
	args := json.RawMessage(`{"path":"/tmp/x","n":3}`)
	for pattern, want := range map[string]bool{
		`args.path.startsWith("/tmp/")`: true, `args.n > 2`: true, `args.n > 3`: false, `args.none == 1`: false, `args.n`: false,
		`)`: false, ``: false,
	} {
		if Matches(pattern, args) != want {
			t.Errorf("%q: want %t", pattern, want)
		}
	}
}

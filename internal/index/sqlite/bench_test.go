package sqlite

import (
	"os"
	"strconv"
	"testing"

	"agentd/internal/index"
)

// BenchmarkQuery asks an index of 20,000 runs, or of as many as AGENTD_BENCH_RUNS says, such as 1000000.
func BenchmarkQuery(b *testing.B) {
	runs, err := strconv.Atoi(os.Getenv("AGENTD_BENCH_RUNS"))
	if err != nil {
		runs = 20_000
	}
	x := opened(b)
	fill(b, x, 0, runs)
	for _, text := range []string{"", "status:waiting waits:permission", "waits:permission waits:question waits:turn", "reason:error changed>-1d", "tag.tenant:t7", "who:person-3 lisbon", `"weeks in porto" agent:travel.*`} {
		f, err := index.ParseFilter(text)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				if _, err := x.Query(b.Context(), index.Query{Filter: f}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

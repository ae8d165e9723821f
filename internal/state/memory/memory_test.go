package memory_test

import (
	"testing"

	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/internal/state/storetest"
)

func TestStore_PassesSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) runner.Store { return memory.New() })
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, "durability=none", func(*testing.B) runner.Store { return memory.New() })
}

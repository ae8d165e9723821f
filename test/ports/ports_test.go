package ports_test

import (
	"testing"

	"agentd/test/ports"
)

// Servers that start at the same time get different ports, though none of them listens yet.
func TestFree_GivesNoPortTwice(t *testing.T) {
	t.Parallel()
	const servers = 1000 // of 20,000 ports: by chance alone some 25 would be given twice
	given := map[int]bool{}
	for range servers {
		port := ports.Free(t)
		if given[port] {
			t.Fatalf("port %d is given twice", port)
		}
		given[port] = true
	}
}

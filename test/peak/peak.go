// Package peak measures the memory that hostile input takes, in a process of its own.
package peak

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

const (
	// limit is what a worker may take for one call, in MB.
	limit = 300
	// hopeless is where a process is ended, before it takes the machine down.
	hopeless = 4 * limit

	variable = "AGENTD_TEST_PEAK"
)

// Memory runs f in a process of its own and fails the test when its memory passes the limit. It is called first in a test
// or subtest, once.
func Memory(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Getenv(variable) == t.Name() {
		measure(t, f)
		return
	}
	parts := strings.Split(t.Name(), "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", strings.Join(parts, "/"), "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), variable+"="+t.Name(), "GOMEMLIMIT=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	took := regexp.MustCompile(`peak of \d+ MB`).Find(out)
	if took == nil {
		t.Fatalf("the test did not run:\n%s", out)
	}
	t.Logf("%s", took)
}

func measure(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	stop, highest := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		for {
			most = max(most, used())
			if most > hopeless {
				fmt.Printf("%s: ended at %d MB\n", t.Name(), most)
				os.Exit(1)
			}
			select {
			case <-every.C:
			case <-stop:
				highest <- most
				return
			}
		}
	}()
	f(t)
	close(stop)
	most := <-highest
	t.Logf("peak of %d MB", most)
	if most > limit {
		t.Errorf("%d MB were taken; want at most %d", most, limit)
	}
}

// used is the memory that the process has from the system, in MB.
func used() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return (samples[0].Value.Uint64() - samples[1].Value.Uint64()) >> 20
}

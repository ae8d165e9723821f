// Package missing is for tests that need something that not every machine has. What did not run is written to a list,
// which `make test` prints at its end.
package missing

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// List is the environment variable that names the list, a file. Each line has three fields with tabs between them:
// required or optional, the suite, and the reason. scripts/tests.sh sets it.
const List = "AGENTD_TEST_NOT_RUN"

// Optional skips a test of agentd with somebody else's program, which nobody has to install.
func Optional(t testing.TB, format string, args ...any) {
	t.Helper()
	reason := fmt.Sprintf(format, args...)
	if os.Getenv(List) != "" {
		record(t, "optional", reason)
	}
	t.Skip(reason)
}

// Required is for a test without which agentd is not tested. `make test` runs the others and fails at its end; without it,
// the test fails at once.
func Required(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv(List) == "" {
		t.Fatal(reason)
	}
	record(t, "required", reason)
	t.Skip(reason)
}

// record appends a line in one write, because several suites run at once.
func record(t testing.TB, kind, reason string) {
	t.Helper()
	suite := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	reason, _, _ = strings.Cut(reason, "\n")
	file, err := os.OpenFile(os.Getenv(List), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(file, "%s\t%s\t%s\n", kind, suite, reason)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// notRunList is the environment variable that names the list of what did not run, which make test prints at its end (test/missing, which is of
// another module).
const notRunList = "AGENTD_TEST_NOT_RUN"

// needGit skips a test where git is missing: agentd is run and tested without.
func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		notRun(t, "git is not installed")
	}
}

// needCheckout skips a test where the sources came without their history, as from an archive: a release is of a commit.
func needCheckout(t *testing.T, root string) {
	t.Helper()
	needGit(t)
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		notRun(t, "the sources are not a checkout of git")
	}
}

func notRun(t *testing.T, reason string) {
	t.Helper()
	if path := os.Getenv(notRunList); path != "" {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := fmt.Fprintf(file, "optional\trelease\t%s\n", reason); err != nil {
			t.Fatal(err)
		}
	}
	t.Skip(reason)
}

// On a machine that has only Debian's base and Go, git is missing, and make test passes and says what did not run.
func TestGit_MayBeMissing(t *testing.T) {
	if os.Getenv("PATH") == "" {
		needGit(t)
		t.Fatal("git is here")
	}
	listed := filepath.Join(t.TempDir(), "list")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^(TestGit_MayBeMissing|TestVersion_IsThatOfGit|TestRelease_IsReproducibleAndWhole)$")
	cmd.Env = []string{"PATH=", notRunList + "=" + listed}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const line = "optional\trelease\tgit is not installed\n"
	if got := string(read(t, listed)); got != strings.Repeat(line, 3) {
		t.Errorf("the list has %q", got)
	}
	t.Run("nor a checkout", func(t *testing.T) {
		t.Setenv(notRunList, filepath.Join(t.TempDir(), "list"))
		needGit(t)
		t.Cleanup(func() {
			if got := string(read(t, os.Getenv(notRunList))); !t.Skipped() || !strings.Contains(got, "not a checkout of git") {
				t.Errorf("skipped: %t, the list has %q", t.Skipped(), got)
			}
		})
		needCheckout(t, t.TempDir())
	})
}

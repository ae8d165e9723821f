package scripts_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goCommand stands in for the Go tool. It says how it was called and which Redis the tests would use; its tests skip what
// needs a Redis that is not there, as test/missing does, and one that nobody has to run.
const goCommand = `
if [ "$1" = env ]; then echo gcc; exit; fi
if [ "$1" = list ]; then printf 'agentd/internal/core\nagentd/test/sim\nagentd/one\n'; exit; fi
echo "go $*"
if ! command -v redis-server >/dev/null && [ -z "$AGENTD_TEST_REDIS_IMAGE" ]; then
  printf 'required\tredisstore\tredis-server is missing\nrequired\tredisstore\tredis-server is missing\n' >>"$AGENTD_TEST_NOT_RUN"
fi
printf 'optional\tinterop\tnode is not installed\n' >>"$AGENTD_TEST_NOT_RUN"
case "$*" in *"$FAILS"*) exit 1 ;; esac`

// aptGet stands in for the package manager: it installs empty programs.
const aptGet = `
[ "$1" = install ] || exit 0
for package in "$@"; do
  case "$package" in
  redis-server | gcc | chromium-headless-shell) printf '#!/bin/sh\n' >"$BIN/$package" && chmod +x "$BIN/$package" && echo "installed $package" >&2 ;;
  esac
done`

// machine is what make test finds. fails is a part of the command whose tests fail.
type machine struct {
	programs map[string]string
	fails    string
}

// run runs a script on a machine on which nothing is installed but Debian's base, Go and the machine's programs.
func (m machine) run(t *testing.T, script string) (code int, output string) {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"bash", "cat", "dirname", "chmod", "cksum", "awk", "df", "grep", "id", "mkdir", "mktemp", "rm", "sort", "tail"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(bin, name)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/bash\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("go", goCommand)
	write("id", "echo 1000")
	for name, text := range m.programs {
		write(name, text)
	}
	fails := m.fails
	if fails == "" {
		fails = "nothing fails"
	}
	cmd := exec.Command(filepath.Join(bin, "bash"), script)
	cmd.Env = []string{"PATH=" + bin, "BIN=" + bin, "FAILS=" + fails, "TMPDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(strings.TrimPrefix(cmd.Env[3], "TMPDIR=")); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v behind, %v", left, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

const (
	works   = "exit 0"
	refuses = "exit 1"
	root    = "echo 0"
	noRedis = "required  redisstore (20): redis-server is missing"
	noRace  = "required  race detector (1): a C compiler is missing: apt-get install gcc libc6-dev"
)

func TestMake_Test_FindsWhatItNeeds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		machine
		code int
		// has and lacks are patterns of what it prints.
		has, lacks []string
	}{
		"everything is there": {
			machine: machine{programs: map[string]string{"redis-server": works, "gcc": works, "docker": works, "chromium": works, "apt-get": aptGet, "id": root}},
			has:     []string{`go test -vet=off -race -timeout 20m -parallel 4 agentd/one\n`, `optional  interop \(10\): node is not installed`},
			lacks:   []string{"installing", "required"},
		},
		"Docker before the package manager": {
			machine: machine{programs: map[string]string{"gcc": works, "docker": works, "apt-get": aptGet, "id": root}},
			has:     []string{`go test -vet=off -race`, "installing chromium-headless-shell"},
			lacks:   []string{"installing redis-server", "required"},
		},
		"the package manager where Docker has no engine": {
			machine: machine{programs: map[string]string{"docker": refuses, "apt-get": aptGet, "id": root}},
			has:     []string{"installing redis-server", "installing gcc libc6-dev", `go test -vet=off -race`},
			lacks:   []string{"required"},
		},
		"an image that cannot be had": {
			machine: machine{programs: map[string]string{"gcc": works, "docker": `[ "$1" = version ]`, "apt-get": aptGet, "id": root}},
			has:     []string{"installing redis-server"},
			lacks:   []string{"required"},
		},
		"nothing may be installed": {
			machine: machine{programs: map[string]string{"apt-get": aptGet}},
			code:    3,
			has:     []string{`go test -vet=off -timeout 20m`, noRedis, noRace, "Install what is required and repeat"},
			lacks:   []string{"installing", "-race"},
		},
		"no package manager": {
			machine: machine{programs: map[string]string{"gcc": works, "id": root}},
			code:    3,
			has:     []string{`go test -vet=off -race`, noRedis},
			lacks:   []string{"race detector"},
		},
		"the package manager fails": {
			machine: machine{programs: map[string]string{"gcc": works, "apt-get": refuses, "id": root}},
			code:    3,
			has:     []string{"installing redis-server", noRedis},
		},
		"a test fails, and others did not run": {
			machine: machine{programs: map[string]string{"gcc": works}, fails: "-race -timeout"},
			code:    1,
			has:     []string{`required  redisstore \(12\)`},
			lacks:   []string{"repeat"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := test.run(t, "test.sh")
			if code != test.code {
				t.Errorf("exit code %d; want %d", code, test.code)
			}
			for _, pattern := range test.has {
				if !regexp.MustCompile(pattern).MatchString(out) && !strings.Contains(out, pattern) {
					t.Errorf("it does not say %q", pattern)
				}
			}
			for _, pattern := range test.lacks {
				if strings.Contains(out, pattern) {
					t.Errorf("it says %q", pattern)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// What a command on a bare machine has left running keeps the mounts busy. They are detached, and the folder is removed, all the same; and
// nothing is mounted where other programs of the machine see it.
func TestMake_Bare_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	bare := machine{programs: map[string]string{
		"id": root, "mkdir": `exec /bin/mkdir "$@"`, "debootstrap": works, "cp": works, "git": works, "tar": works, "mountpoint": works,
		"unshare": `[ "$1" = --mount ] && shift && MOUNTS=own exec "$@"`,
		"mount":   `[ "$MOUNTS" = own ] || { echo "mounted for everybody"; exit 1; }`,
		"umount":  `[ "$1" = --lazy ] || { echo "target is busy"; exit 32; }`,
		"env":     "exit 7", // by which it runs the command
	}}
	if code, out := bare.run(t, "bare.sh"); code != 7 {
		t.Errorf("exit code %d, not the command's\n%s", code, out)
	}
}

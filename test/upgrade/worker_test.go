package upgrade

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"agentd/internal/core"
	"agentd/test/capture"
)

// programs are the command in four versions: as it was at base, as it is, as it is but for the layout of what it writes, which the others
// cannot read, and as it is but for packed entries, of which it knows nothing.
type programs struct{ older, newer, later, unpacked string }

func build(t *testing.T) programs {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := output(root, "git", "cat-file", "-e", base+"^{commit}"); err != nil {
		t.Fatalf("the older worker cannot be built: commit %s is missing; a shallow clone needs git fetch --unshallow", base)
	}
	sources, built := t.TempDir(), t.TempDir()
	archive := filepath.Join(built, "base.tar")
	must(t, root, "git", "archive", "-o", archive, base)
	must(t, sources, "tar", "-xf", archive)
	p := programs{filepath.Join(built, "older"), filepath.Join(built, "newer"), filepath.Join(built, "later"), filepath.Join(built, "unpacked")}
	must(t, sources, "go", "build", "-o", p.older, "./cmd/agentd")
	must(t, root, "go", "build", "-o", p.newer, "./cmd/agentd")
	must(t, root, "go", "build", "-overlay", changed(t, root, laterLayout), "-o", p.later, "./cmd/agentd")
	must(t, root, "go", "build", "-overlay", changed(t, root, unpacked), "-o", p.unpacked, "./cmd/agentd")
	return p
}

// With laterLayout every entry has a layout that this version does not read: the next one.
var laterLayout = map[string][]string{
	"internal/core/head.go": {
		fmt.Sprint("const LayoutVersion = ", core.LayoutVersion), fmt.Sprint("const LayoutVersion = ", core.LayoutVersion+1),
	},
	"internal/core/step.go": {"t.Head.V = spec.layout(&t.Head)", "t.Head.V = LayoutVersion"},
}

// With unpacked entries are written and taken as they are.
var unpacked = map[string][]string{
	"internal/state/packed/packed.go": {
		"func pack(plain []byte) []byte {", "func pack(plain []byte) []byte {\n\tif true {\n\t\treturn plain\n\t}",
		"func unpack(data []byte) ([]byte, error) {", "func unpack(data []byte) ([]byte, error) {\n\tif true {\n\t\treturn data, nil\n\t}",
	},
}

// changed writes an overlay for go build, in which files have another text in the place of one that they have.
func changed(t *testing.T, root string, changes map[string][]string) string {
	t.Helper()
	replace := map[string]string{}
	for name, change := range changes {
		file := filepath.Join(root, name)
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(source)
		for pair := range slices.Chunk(change, 2) {
			if !strings.Contains(text, pair[0]) {
				t.Fatalf("%s does not have %q", file, pair[0])
			}
			text = strings.Replace(text, pair[0], pair[1], 1)
		}
		replace[file] = filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(replace[file], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func output(dir, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func must(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	if out, err := output(dir, program, args...); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
}

// command runs a command of agentd to its end.
func (w *world) command(program string, args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), program, append(args, "--config", "testdata/agentd.yaml")...)
	cmd.Env = append(os.Environ(), w.environment...)
	var out, problems capture.Output
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		w.t.Errorf("%s %q: %v\n%s%s", filepath.Base(program), args, err, out.String(), problems.String())
	}
	return out.String()
}

// worker is a process of agentd serve.
type worker struct {
	world   *world
	program string
	name    string
	cmd     *exec.Cmd
	log     capture.Output
	stopped bool
}

// work starts a worker and waits until it serves.
func (w *world) work(program string) *worker {
	w.t.Helper()
	k := &worker{world: w, program: program, name: filepath.Base(program)}
	k.cmd = exec.Command(program, "serve", "--config", "testdata/agentd.yaml")
	k.cmd.Env = append(os.Environ(), w.environment...)
	k.cmd.Stderr = &k.log
	if err := k.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.workers = append(w.workers, k)
	w.t.Cleanup(func() { k.stop(false) })
	w.until(k.name+" serves", func(context.Context) (bool, error) {
		return strings.Contains(k.log.String(), `"msg":"serving"`), nil
	})
	return k
}

// stop ends the process: gracefully, or by the plug.
func (k *worker) stop(gracefully bool) {
	if k.stopped {
		return
	}
	k.stopped = true
	signal := syscall.SIGKILL
	if gracefully {
		signal = syscall.SIGTERM
	}
	if err := k.cmd.Process.Signal(signal); err != nil {
		k.world.t.Errorf("stop %s: %v", k.name, err)
	}
	if err := k.cmd.Wait(); err != nil && gracefully {
		k.world.t.Errorf("%s: %v\n%s", k.name, err, k.log.String())
	}
}

// judge reads the log. A worker may warn of a run now and then: its messages come again when another worker was killed. One that
// meets the same again and again cannot go on with what the other version wrote.
func (k *worker) judge() {
	const often = 5
	times := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(k.log.String()))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var record struct{ Level, Msg, Run, Subject string }
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			k.world.t.Errorf("%s printed %q: %v", k.name, lines.Text(), err)
			continue
		}
		switch record.Level {
		case "ERROR":
			k.world.t.Errorf("%s: %s", k.name, lines.Text())
		case "WARN":
			if key := strings.Join([]string{record.Msg, record.Run, record.Subject}, " "); times[key] == often {
				k.world.t.Errorf("%s, %d times and more: %s", k.name, often, lines.Text())
			} else {
				times[key]++
			}
		}
	}
	if err := lines.Err(); err != nil {
		k.world.t.Error(err)
	}
}

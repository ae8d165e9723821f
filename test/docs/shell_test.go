package docs

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentd/test/capture"
)

// patience is how long anything may take.
const patience = 90 * time.Second

// binaries are the programs that pages call. They are built once, when first needed.
type binaries struct{ dir, agentd, traveldesk string }

var built = sync.OnceValues(func() (binaries, error) {
	dir, err := os.MkdirTemp("", "agentd-docs-")
	if err != nil {
		return binaries{}, err
	}
	folder = dir
	b := binaries{dir, filepath.Join(dir, "agentd"), filepath.Join(dir, "traveldesk")}
	for _, one := range []struct {
		in       string
		packages []string
	}{
		{root, []string{"./cmd/agentd", "github.com/nats-io/nats-server/v2"}}, {root + "/examples/traveldesk", []string{"."}},
	} {
		cmd := exec.Command("go", append([]string{"build", "-o", dir}, one.packages...)...)
		cmd.Dir = one.in
		if out, err := cmd.CombinedOutput(); err != nil {
			return b, fmt.Errorf("build %s: %w\n%s", strings.Join(one.packages, " "), err, out)
		}
	}
	return b, nil
})

func programs(t *testing.T) binaries {
	t.Helper()
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// folder is where the programs are, once they are built.
var folder string

func TestMain(m *testing.M) {
	code := m.Run()
	if folder != "" {
		_ = os.RemoveAll(folder) // a temporary one
	}
	os.Exit(code)
}

// shell is where the commands of a page are typed.
type shell struct {
	t   *testing.T
	dir string
	env []string
	// change is what is typed in place of a text of the page, such as another port; values are asked for when they are
	// needed, so that they may come from what was typed before.
	change []change
	// goesOn are texts of commands that do not end, and what they print when they are ready.
	goesOn map[string]string
	// exits are texts of commands that end with another code than 0.
	exits map[string]int
	// like are texts of what a page shows, and a pattern for what differs from time to time.
	like map[string]string
}

type change struct {
	text string
	to   func() string
}

func fixed(text string) func() string { return func() string { return text } }

// newShell is a shell in an empty folder, with none of this machine's settings.
func newShell(t *testing.T) *shell {
	t.Helper()
	b := programs(t)
	s := &shell{t: t, dir: t.TempDir(), goesOn: map[string]string{}, exits: map[string]int{}, like: map[string]string{}}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if !regexp.MustCompile(`^(AGENTD_|NATS_|REDIS_|OPENAI_|ANTHROPIC_|OTEL_|XDG_CONFIG|PATH$)`).MatchString(name) {
			s.env = append(s.env, e)
		}
	}
	s.env = append(s.env, "PATH="+b.dir+string(os.PathListSeparator)+os.Getenv("PATH"), "NO_COLOR=1", "XDG_CONFIG_HOME="+s.dir)
	return s
}

func (s *shell) instead(text, to string) { s.change = append(s.change, change{text, fixed(to)}) }

// folder makes a folder below the shell's, with copies of files, and goes there.
func (s *shell) folder(name string, from ...string) {
	s.t.Helper()
	s.dir = filepath.Join(s.dir, name)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	for _, dir := range from {
		if err := os.CopyFS(s.dir, os.DirFS(filepath.Join(root, dir))); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *shell) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// files writes those blocks of a page that name their file: in their first line, such as "# agentd.yaml", or in a comment before
// them, where the file must not have such a line.
func (s *shell) files(page string) {
	s.t.Helper()
	for _, b := range blocks(s.t, page) {
		if m := regexp.MustCompile(`^(?:#|//|<!--) ([\w./-]+\.[a-z]+)(?: -->)?\n`).FindStringSubmatch(b.text); m != nil {
			s.write(m[1], b.text)
		} else if name, ok := strings.CutPrefix(b.mark, "file: "); ok {
			s.write(name, b.text)
		}
	}
}

// typeBlock types the commands of a block, one after the other, and compares what they print. A list is looked at again
// until it is what the page shows.
func (s *shell) typeBlock(b block) {
	s.t.Helper()
	for _, c := range b.commands() {
		for deadline := time.Now().Add(patience); ; {
			out := s.typed(c.typed)
			missing := s.missing(c, out)
			if missing == "" {
				break
			}
			if !strings.Contains(c.typed, " list") || time.Now().After(deadline) {
				s.t.Errorf("%s: %s\nshows  %s\nprints %s", b, c.typed, missing, out)
				break
			}
		}
	}
}

// typed types one command, and returns what it printed by its end, or by when it was ready.
func (s *shell) typed(line string) string {
	s.t.Helper()
	if elsewhere.MatchString(line) {
		return ""
	}
	for _, c := range s.change {
		if strings.Contains(line, c.text) {
			line = strings.ReplaceAll(line, c.text, c.to())
		}
	}
	if strings.HasPrefix(line, "cd ") {
		s.dir = filepath.Join(s.dir, strings.TrimSpace(strings.TrimPrefix(line, "cd ")))
		return ""
	}
	if name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "="); ok && strings.HasPrefix(line, "export ") && !strings.ContainsAny(name, " $") {
		for assignment := range strings.FieldsSeq(name + "=" + value) {
			s.env = append(s.env, assignment)
		}
		return ""
	}
	p := s.start(line)
	for text, ready := range s.goesOn {
		if strings.Contains(line, text) {
			p.until(ready)
			s.t.Cleanup(p.stop)
			return p.out.String()
		}
	}
	err := p.wait()
	want := 0
	for text, code := range s.exits {
		if strings.Contains(line, text) {
			want = code
		}
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		s.t.Fatalf("%s: %v, want exit code %d\n%s", line, err, want, p.out.String())
	}
	return p.out.String()
}

// eventually types a command until what it prints satisfies holds.
func (s *shell) eventually(line string, holds func(out string) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		p := s.start(line)
		_ = p.wait() // it may fail until then
		if holds(p.out.String()) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s goes on to print:\n%s", line, p.out.String())
		}
	}
}

// missing is a line of output that the page shows and a command did not print, or "". Lines may come in another order:
// what happens at the same time does.
func (s *shell) missing(c command, out string) string {
	s.t.Helper()
	for _, line := range c.shown {
		if !s.pattern(line).MatchString(out) {
			return line
		}
	}
	return ""
}

var (
	spaces = regexp.MustCompile(`(?:\\?\s)+`)
	ages   = regexp.MustCompile(`\b\d+(?:ms|s|m|h|d)\b`)
)

// pattern is what a line of output that a page shows stands for: "…" is anything, ages and widths of columns differ.
func (s *shell) pattern(line string) *regexp.Regexp {
	s.t.Helper()
	text := regexp.QuoteMeta(line)
	for _, shown := range slices.Sorted(maps.Keys(s.like)) {
		text = strings.ReplaceAll(text, regexp.QuoteMeta(shown), s.like[shown])
	}
	text = ages.ReplaceAllString(text, `\d+(?:ms|s|m|h|d)`)
	text = spaces.ReplaceAllString(strings.ReplaceAll(text, "…", `.*`), `\s+`)
	return regexp.MustCompile(`(?m)^\s*` + text + `\s*$`)
}

// process is a command that was typed.
type process struct {
	t    *testing.T
	line string
	cmd  *exec.Cmd
	out  *capture.Output
	done chan struct{}
	err  error
}

func (s *shell) start(line string) *process {
	s.t.Helper()
	p := &process{t: s.t, line: line, out: &capture.Output{}, done: make(chan struct{})}
	p.cmd = exec.Command("bash", "-euo", "pipefail", "-c", strings.TrimSuffix(strings.TrimSpace(regexp.MustCompile(`&?\s+# .*$`).ReplaceAllString(line, "")), "&"))
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = s.dir, s.env, p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what bash starts is stopped with it
	if err := p.cmd.Start(); err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

func (p *process) wait() error {
	p.t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		p.stop()
		p.t.Fatalf("%s does not end:\n%s", p.line, p.out.String())
		return nil
	}
}

func (p *process) until(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(p.out.String(), text); {
		select {
		case <-p.done:
			p.t.Fatalf("%s: %v\n%s", p.line, p.err, p.out.String())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.stop()
			p.t.Fatalf("%s does not print %q:\n%s", p.line, text, p.out.String())
		}
	}
}

// stop asks the process to stop, and kills it when it does not.
func (p *process) stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
	if p.t.Failed() {
		p.t.Logf("%s:\n%s", p.line, p.out.String())
	}
}

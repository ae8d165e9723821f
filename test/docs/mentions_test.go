package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// help is what a command says of itself, by its words, such as "runs list". It is asked once.
type help struct {
	mu    sync.Mutex
	known map[string]string
}

func (h *help) of(t *testing.T, words ...string) string {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	key := strings.Join(words, " ")
	if text, ok := h.known[key]; ok {
		return text
	}
	out, err := exec.Command(programs(t).agentd, append(words, "--help")...).CombinedOutput()
	if err != nil {
		t.Errorf("agentd %s --help: %v\n%s", key, err, out)
	}
	h.known[key] = string(out)
	return string(out)
}

var (
	inline     = regexp.MustCompile("`([^`\n]+)`")
	apart      = regexp.MustCompile(`[;|&()]|\$\(|\s#\s`)
	assignment = regexp.MustCompile(`^\w+=\S*\s+`)
	subcommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +\S`)
	flag       = regexp.MustCompile(`^--?[a-z][a-z-]*`)
	word       = regexp.MustCompile(`^[a-z][a-z|-]*$`)
)

// A command or flag that a page mentions exists.
func TestPages_MentionCommandsThatExist(t *testing.T) {
	t.Parallel()
	h := &help{known: map[string]string{}}
	for _, page := range pages(t) {
		text := read(t, page)
		for _, b := range blocks(t, page) {
			if b.types() {
				for _, c := range b.commands() {
					h.check(t, b.String(), c.typed)
				}
			}
		}
		for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if strings.HasPrefix(m[1], "agentd ") && !strings.Contains(m[1], ": ") {
				h.check(t, page, m[1])
			}
		}
	}
	if len(h.known) < 20 {
		t.Errorf("the pages mention %d commands only", len(h.known))
	}
}

// check checks every call of agentd in a text.
func (h *help) check(t *testing.T, where, text string) {
	t.Helper()
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		for _, part := range apart.Split(line, -1) {
			for part = strings.TrimSpace(part); assignment.MatchString(part); {
				part = assignment.ReplaceAllString(part, "")
			}
			if fields := strings.Fields(part); len(fields) > 0 && (fields[0] == "agentd" || strings.HasSuffix(fields[0], "/agentd")) {
				h.checkWords(t, where+": "+part, fields[1:])
			}
		}
	}
}

// checkWords checks what is typed after agentd: subcommands, which may be alternatives such as list|show, and flags.
func (h *help) checkWords(t *testing.T, where string, typed []string) {
	t.Helper()
	var command []string
	about := h.of(t)
	for _, w := range typed {
		w = strings.Trim(w, "[]")
		if name := flag.FindString(w); name != "" {
			if !regexp.MustCompile(`(?m)^ +(?:-\w, )?` + name + `\b|^ +` + name + `, `).MatchString(about) {
				t.Errorf("%s: agentd %s has no flag %s", where, strings.Join(command, " "), name)
			}
			continue
		}
		if !isGroup(about) || !word.MatchString(w) {
			continue
		}
		alternatives := strings.Split(w, "|")
		for _, name := range alternatives {
			if !isCommand(about, name) {
				t.Errorf("%s: agentd %s has no command %s", where, strings.Join(command, " "), name)
				return
			}
		}
		if len(alternatives) > 1 {
			return
		}
		command = append(command, w)
		about = h.of(t, command...)
	}
}

// isCommand reports whether a help text lists a subcommand.
func isCommand(about, name string) bool {
	_, list, ok := strings.Cut(about, "Commands:\n")
	if !ok {
		return false
	}
	list, _, _ = strings.Cut(list, "\nFlags:")
	for _, m := range subcommand.FindAllStringSubmatch(list, -1) {
		if m[1] == name {
			return true
		}
	}
	return false
}

// isGroup reports whether a command does nothing but hold others.
func isGroup(about string) bool { return strings.Contains(about, " [command]\n") }

// TestDecisions_AreNumberedOnce: the number of a decision is its name.
func TestDecisions_AreNumberedOnce(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "docs/adr/0*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("# %d. ", i+1)
		if base := filepath.Base(file); !strings.HasPrefix(base, fmt.Sprintf("%04d-", i+1)) || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: want the %d. decision, with the title %q", base, i+1, want)
		}
	}
}

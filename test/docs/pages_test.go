package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// block is a fenced block of a page.
type block struct {
	page, language string
	line           int
	// mark is the comment on the line before it, without the arrows.
	mark, text string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

var (
	fenced  = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	comment = regexp.MustCompile(`<!-- (.*) -->\n$`)
)

// pages are the pages whose commands are typed.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range found {
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, filepath.ToSlash(name))
		}
	}
	return all
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks are the fenced blocks of a page.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	text := read(t, page)
	var all []block
	for _, at := range fenced.FindAllStringSubmatchIndex(text, -1) {
		b := block{page: page, language: text[at[2]:at[3]], text: text[at[4]:at[5]], line: strings.Count(text[:at[0]], "\n") + 1}
		if m := comment.FindStringSubmatch(text[:at[0]]); m != nil {
			b.mark = m[1]
		}
		all = append(all, b)
	}
	return all
}

// types reports whether the block shows commands.
func (b block) types() bool {
	return slices.Contains([]string{"console", "sh", "bash"}, b.language) || strings.HasPrefix(b.text, "$ ")
}

// command is what is typed, and what the page shows of what it prints.
type command struct {
	typed string
	shown []string
}

// commands are those of a block: with a prompt and what they print, or a script.
func (b block) commands() []command {
	if b.language != "console" && !strings.HasPrefix(b.text, "$ ") {
		return []command{{typed: b.text}}
	}
	var all []command
	for line := range strings.SplitSeq(b.text, "\n") {
		typed, prompted := strings.CutPrefix(line, "$ ")
		switch last := len(all) - 1; {
		case prompted:
			all = append(all, command{typed: typed})
		case line == "" || last < 0:
		case strings.HasSuffix(all[last].typed, `\`):
			all[last].typed += "\n" + line
		default:
			all[last].shown = append(all[last].shown, line)
		}
	}
	return all
}

// elsewhere are commands that are typed by whoever has the repository; CI types them all but the first.
var elsewhere = regexp.MustCompile(`^(git clone .*|make\b.*)`)

// known are sessions by the page and a text of the block that they type.
func (b block) session() *session {
	for i := range sessions {
		s := &sessions[i]
		if s.page != b.page {
			continue
		}
		if len(s.blocks) == 0 || slices.ContainsFunc(s.blocks, func(text string) bool { return strings.Contains(b.text, text) }) {
			return s
		}
	}
	return nil
}

func TestPages_EveryCommandIsTypedOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	used := map[*session]bool{}
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if !b.types() {
				continue
			}
			if strings.HasPrefix(b.mark, "not run: ") || strings.HasPrefix(b.mark, "run by ") {
				b.checkMark(t)
				continue
			}
			if s := b.session(); s != nil {
				used[s] = true
				continue
			}
			for _, c := range b.commands() {
				if !elsewhere.MatchString(c.typed) {
					t.Errorf("%s: nothing types %q: add a session to test/docs/sessions_test.go, or a line <!-- not run: WHY --> "+
						"before the block", b, c.typed)
				}
			}
		}
	}
	for i := range sessions {
		if s := &sessions[i]; !used[s] {
			t.Errorf("%s has no block with any of %q", s.page, s.blocks)
		}
	}
}

var namedTest = regexp.MustCompile(`\b((?:test|cmd|scripts)/[a-z/]+) (Test\w+)`)

// checkMark checks a block that this package does not type: tests that it names exist, and it is valid shell.
func (b block) checkMark(t *testing.T) {
	t.Helper()
	named := namedTest.FindAllStringSubmatch(b.mark, -1)
	if strings.HasPrefix(b.mark, "run by ") && len(named) == 0 {
		t.Errorf("%s: no test is named: want <!-- run by FOLDER TestNAME -->", b)
	}
	for _, m := range named {
		dir, name := m[1], m[2]
		if out, err := exec.Command("grep", "-rlE", "--include=*_test.go", `^func `+name+`\(t \*testing\.T\)`, filepath.Join(root, dir)).CombinedOutput(); err != nil {
			t.Errorf("%s: test %q does not exist in %q: %s", b, name, dir, out)
		}
	}
	for _, c := range b.commands() {
		if out, err := exec.Command("bash", "-n", "-c", c.typed).CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %s", b, c.typed, out)
		}
	}
}

var target = regexp.MustCompile("(?m)(?:^\\$ |`)make ([a-z][a-z0-9-]*)")

func TestPages_NameTargetsOfTheMakefile(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	for _, page := range pages(t) {
		for _, m := range target.FindAllStringSubmatch(read(t, page), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: make %s does not exist", page, m[1])
			}
		}
	}
}

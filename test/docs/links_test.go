package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	destination = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	scheme      = regexp.MustCompile(`^[a-z]+:`)
	heading     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	linked      = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	unnamed     = regexp.MustCompile(`[^\p{L}\p{M}\p{N}_ -]`)
)

// linkingPages are all pages with links.
func linkingPages(t *testing.T) []string {
	t.Helper()
	all := append(pages(t), "CHANGELOG.md")
	for _, pattern := range []string{"docs/adr/*.md", "sdk/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range found {
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, filepath.ToSlash(name))
		}
	}
	return all
}

// anchors are those of a page's headings, as GitHub names them.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	var all []string
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, page), ""), -1) {
		text := strings.ToLower(linked.ReplaceAllString(m[1], "$1"))
		name := strings.ReplaceAll(unnamed.ReplaceAllString(text, ""), " ", "-")
		if n := seen[name]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", name, n))
		} else {
			all = append(all, name)
		}
		seen[name]++
	}
	return all
}

// A link leads to a file of the repository that exists, and where it names a part of a page, to one of its headings.
func TestPages_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	parts := 0
	for _, page := range linkingPages(t) {
		text := inline.ReplaceAllString(fenced.ReplaceAllString(read(t, page), ""), "")
		for _, m := range destination.FindAllStringSubmatch(text, -1) {
			if scheme.MatchString(m[1]) {
				continue
			}
			file, part, named := strings.Cut(m[1], "#")
			to := page
			if file != "" {
				to = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: %s: %v", page, m[0], err)
				continue
			}
			if !named || !strings.HasSuffix(to, ".md") {
				continue
			}
			headings := anchors(t, to)
			if parts++; !slices.Contains(headings, part) {
				t.Errorf("%s: %s: %s has no such heading", page, m[0], to)
			}
			if slices.Contains(headings, part+"-1") {
				t.Errorf("%s: %s: %s has two such headings", page, m[0], to)
			}
		}
	}
	if parts < 100 {
		t.Errorf("%d links to parts of pages were found", parts)
	}
}

// Whoever looks for a page finds it from the README.
func TestReadme_NamesEveryPage(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/") && !strings.Contains(readme, "]("+page+")") {
			t.Errorf("README.md does not name %s", page)
		}
	}
}

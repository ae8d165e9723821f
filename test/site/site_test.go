// Package site builds the documentation as a site, as `make site` does, and looks at what came out.
package site

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentd/test/missing"
)

const repository = "../.."

func TestSite_NavigationHasEveryPage(t *testing.T) {
	t.Parallel()
	config := read(t, repository, "site/.vitepress/config.mjs")
	for _, page := range pages(t) {
		if name := strings.TrimSuffix(page, ".md"); !strings.Contains(config, "'"+name+"': '") {
			t.Errorf("the navigation of site/.vitepress/config.mjs does not have %s", page)
		}
	}
}

// A link to a page that does not exist fails the build.
func TestSite_IsBuiltWithEveryPageAndSearch(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	install(t, root)
	build := exec.CommandContext(t.Context(), "npm", "run", "--silent", "build")
	build.Dir = filepath.Join(root, "site")
	build.Env = append(os.Environ(), "SOURCE=https://example.com/agentd", "BASE=/docs-of-agentd/")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("npm run build: %v\n%s", err, out)
	}
	index := read(t, root, "dist/site/index.html")
	for _, want := range []string{"<svg", "The journal of one run", `href="/docs-of-agentd/docs/quickstart.html"`} {
		if !strings.Contains(index, want) {
			t.Errorf("the first page lacks %s", want)
		}
	}
	search := searchIndex(t, root)
	title := regexp.MustCompile(`(?m)^# (.+)$`)
	for _, page := range pages(t) {
		html := read(t, root, "dist/site/"+strings.TrimSuffix(page, ".md")+".html")
		heading := strings.ReplaceAll(title.FindStringSubmatch(read(t, repository, page))[1], "`", "")
		if !strings.Contains(html, "<h1") || !strings.Contains(search, heading) {
			t.Errorf("%s or its title %q in the search is missing", page, heading)
		}
	}
	checkParts(t, root)
	if html := read(t, root, "dist/site/docs/prompts.html"); !strings.Contains(html, "{{") {
		t.Error("the templates of docs/prompts.md are not shown")
	}
	if html := read(t, root, "dist/site/docs/go.html"); !strings.Contains(html, `href="https://example.com/agentd/sdk/doc.go"`) {
		t.Error("sources of docs/go.md are not linked")
	}
}

var (
	part = regexp.MustCompile(`href="([^"#:]*)#([^"]+)"`)
	id   = regexp.MustCompile(` id="([^"]+)"`)
)

// checkParts checks that links to parts of pages lead to them: the headings of the site are named as on GitHub.
func checkParts(t *testing.T, root string) {
	t.Helper()
	named := map[string]map[string]bool{}
	for _, page := range pages(t) {
		file := strings.TrimSuffix(page, ".md") + ".html"
		named[file] = map[string]bool{}
		for _, m := range id.FindAllStringSubmatch(read(t, root, "dist/site/"+file), -1) {
			named[file][m[1]] = true
		}
	}
	others := 0
	for file := range named {
		for _, m := range part.FindAllStringSubmatch(read(t, root, "dist/site/"+file), -1) {
			to := file
			if absolute, ok := strings.CutPrefix(m[1], "/docs-of-agentd/"); ok {
				to = absolute
			} else if m[1] != "" {
				to = path.Join(path.Dir(file), m[1])
			}
			if to != file {
				others++
			}
			if headings, ok := named[to]; ok && !headings[m[2]] {
				t.Errorf("%s links to %s#%s, which is not there", file, to, m[2])
			}
		}
	}
	if others < 50 {
		t.Errorf("%d links to parts of other pages were found", others)
	}
}

// install makes root a copy of the repository in which nothing of its folder site is shared with it, with the packages of the lock file.
func install(t *testing.T, root string) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			missing.Optional(t, "%s is not installed", program)
		}
	}
	entries, err := os.ReadDir(repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		source, err := filepath.Abs(filepath.Join(repository, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if name := entry.Name(); name == "site" || name == "dist" || strings.HasPrefix(name, ".") {
			continue
		}
		if err := os.Symlink(source, filepath.Join(root, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{
		"package.json", "package-lock.json", "index.md", ".vitepress/config.mjs", ".vitepress/theme/index.mjs", ".vitepress/theme/style.css",
		".vitepress/theme/Diagram.vue", ".vitepress/theme/Picture.vue",
	} {
		to := filepath.Join(root, "site", file)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(read(t, repository, "site/"+file)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ci := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1")
	ci.Dir = filepath.Join(root, "site")
	var stderr bytes.Buffer
	ci.Stderr = &stderr
	if err := ci.Run(); err != nil {
		missing.Optional(t, "the packages of the site cannot be installed: %v %s", err, &stderr)
	}
}

// pages are the pages of docs, by their paths.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(repository, "docs/*.md"))
	if err != nil || len(found) == 0 {
		t.Fatal("no pages", err)
	}
	for i, path := range found {
		found[i] = "docs/" + filepath.Base(path)
	}
	return found
}

func searchIndex(t *testing.T, root string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "dist/site/assets/chunks/@localSearchIndex*.js"))
	if err != nil || len(found) != 1 {
		t.Fatal("the search has no index", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func read(t *testing.T, root, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

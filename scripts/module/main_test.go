package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func TestSource_IsRenamedWhereItNamesAPackage(t *testing.T) {
	t.Parallel()
	r := renaming{"agentd", "github.com/acme/agentd", map[string]bool{"agentd/sdk": true}}
	const before = "package p\n\nimport (\n\t\"agentd/sdk\"\n\t\"encoding/json\"\n\n\tw \"agentd/sdk/wire\" // agentd/sdk\n)\n\n" +
		"var (\n\t_ = \"agentd/sdk\"\n\t_ = \"agentd\"\n\t_ = \"agentd/sdk/other\"\n\t_ = \"agentd.start.local\"\n\t_ = `import \"agentd/sdk\"`\n" +
		"\t_ = `package q; import \"agentd/sdk\"`\n)\n"
	const after = "package p\n\nimport (\n\t\"encoding/json\"\n\n\t\"github.com/acme/agentd/sdk\"\n\n\tw \"github.com/acme/agentd/sdk/wire\" // agentd/sdk\n)\n\n" +
		"var (\n\t_ = \"github.com/acme/agentd/sdk\"\n\t_ = \"agentd\"\n\t_ = \"agentd/sdk/other\"\n\t_ = \"agentd.start.local\"\n\t_ = `import \"agentd/sdk\"`\n" +
		"\t_ = `package q; import \"github.com/acme/agentd/sdk\"`\n)\n"
	got, err := r.source([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(after, "\t\"encoding/json\"\n\n\t\"github", "\t\"encoding/json\"\n\t\"github", 1); string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

const newPath = "github.com/acme/agentd"

// version is this process's own: whatever else tests on this machine shares the cache of modules.
var version = "v0.1.0-renamed." + strconv.Itoa(os.Getpid())

// Under another path the module is one that others depend on: they get it from a proxy, build the quickstart's service with it,
// and install the command.
func TestModule_IsObtainedUnderAnotherPath(t *testing.T) {
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	files := copyTree(t, "../..", tree)
	if _, err := rename(tree, newPath); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if kind := filepath.Ext(file); kind == ".go" || kind == ".md" || filepath.Base(file) == "go.mod" || file == ".golangci.yml" {
			continue
		}
		if !bytes.Equal(read(t, filepath.Join("../..", file)), read(t, filepath.Join(tree, file))) {
			t.Errorf("%s is another file now", file)
		}
	}
	if path := modfile.ModulePath(read(t, filepath.Join(tree, "go.mod"))); path != newPath {
		t.Fatalf("the module is %s, want %s", path, newPath)
	}
	proxy := filepath.Join(dir, "proxy")
	publish(t, tree, proxy)

	outside := filepath.Join(dir, "outside")
	page := string(read(t, filepath.Join(tree, "docs", "quickstart.md")))
	_, service, _ := strings.Cut(page, "```go\n// main.go\n")
	service, _, _ = strings.Cut(service, "```")
	write(t, filepath.Join(outside, "main.go"), service)
	write(t, filepath.Join(outside, "go.mod"), "module refunds\n\ngo 1.26.0\n")
	bin := filepath.Join(dir, "bin")
	env := append(os.Environ(), "GOPROXY=file://"+filepath.ToSlash(proxy)+","+output(t, nil, ".", "go", "env", "GOPROXY"),
		"GONOSUMDB="+newPath, "GOFLAGS=-modcacherw", "GOBIN="+bin, "GOWORK=off")
	t.Cleanup(func() { forget(t, env) })
	output(t, env, outside, "go", "get", newPath+"@"+version)
	output(t, env, outside, "go", "mod", "tidy")
	output(t, env, outside, "go", "build", "-o", filepath.Join(bin, "refunds"), ".")
	output(t, env, outside, "go", "install", newPath+"/cmd/agentd@"+version)
	if said := output(t, nil, ".", filepath.Join(bin, "agentd"), "version"); !strings.Contains(said, version) {
		t.Errorf("the installed command says %q, want its version %s", said, version)
	}
}

// copyTree copies the sources that are in a folder, and returns the files' names.
func copyTree(t *testing.T, from, to string) []string {
	t.Helper()
	files := filesOf(t, from)
	for _, file := range files {
		write(t, filepath.Join(to, file), string(read(t, filepath.Join(from, file))))
	}
	return files
}

// filesOf are the files of a checkout, as git has them or is to have them. Whoever has the sources without git has their folder.
func filesOf(t *testing.T, from string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(from, ".git")); err == nil {
		return strings.Split(output(t, nil, from, "git", "ls-files", "--cached", "--others", "--exclude-standard"), "\n")
	}
	var files []string
	err := fs.WalkDir(os.DirFS(from), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains([]string{"bin", "dist", "node_modules", ".agentd"}, e.Name()): // what is made
			return fs.SkipDir
		case e.Type().IsRegular():
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A folder without git has the same sources as a checkout, and what was made of them is none.
func TestSources_AreFoundWithoutGit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, file := range []string{"go.mod", ".golangci.yml", "cmd/agentd/main.go", "bin/agentd", "site/node_modules/a/index.js", "examples/desk/.agentd/address"} {
		write(t, filepath.Join(dir, file), "")
	}
	want := []string{".golangci.yml", "cmd/agentd/main.go", "go.mod"}
	if got := filesOf(t, dir); !slices.Equal(got, want) {
		t.Errorf("the sources are %q, want %q", got, want)
	}
}

// publish writes a module proxy on disk that has the module.
func publish(t *testing.T, tree, proxy string) {
	t.Helper()
	folder := filepath.Join(proxy, newPath, "@v")
	info, err := json.Marshal(map[string]string{"Version": version, "Time": "2026-11-22T00:00:00Z"})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "list"), version+"\n")
	write(t, filepath.Join(folder, version+".info"), string(info))
	write(t, filepath.Join(folder, version+".mod"), string(read(t, filepath.Join(tree, "go.mod"))))
	archive, err := os.Create(filepath.Join(folder, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if err := zip.CreateFromDir(archive, module.Version{Path: newPath, Version: version}, tree); err != nil {
		t.Fatal(err)
	}
}

// forget removes the module from the machine's cache of modules.
func forget(t *testing.T, env []string) {
	t.Helper()
	cache := output(t, env, ".", "go", "env", "GOMODCACHE")
	downloads, err := filepath.Glob(filepath.Join(cache, "cache", "download", newPath, "@v", version+".*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(downloads, filepath.Join(cache, newPath+"@"+version)) {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	}
}

func output(t *testing.T, env []string, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(stdout.String())
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// product is the name of the program, its packages and its images.
const product = "agentd"

// summary says what it is.
const summary = "Durable LLM agents on NATS JetStream"

// target is an operating system and an architecture.
type target struct{ OS, Arch string }

func (t target) String() string { return t.OS + "/" + t.Arch }

// Go's names of operating systems and architectures.
const (
	linux   = "linux"
	darwin  = "darwin"
	windows = "windows"
	amd64   = "amd64"
	arm64   = "arm64"
)

var allTargets = []target{
	{linux, amd64}, {linux, arm64}, {darwin, amd64}, {darwin, arm64}, {windows, amd64}, {windows, arm64},
}

func parseTargets(list string) ([]target, error) {
	if list == "" {
		return allTargets, nil
	}
	var chosen []target
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(allTargets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("target %q: want some of %v", name, allTargets)
		}
		chosen = append(chosen, allTargets[i])
	}
	return chosen, nil
}

// file is a file of a release.
type file struct {
	// name is its path in an archive, place where a package installs it; empty is nowhere.
	name, place string
	data        []byte
	mode        fs.FileMode
}

// program is agentd for one target, with what lies beside it.
type program struct {
	about  version
	target target
	binary string
	extras []file
}

// name begins the names of the program's files.
func (p program) name() string {
	return fmt.Sprintf("agentd_%s_%s_%s", p.about.number(), p.target.OS, p.target.Arch)
}

// build builds the binary and returns its path. It has no C code, no paths of this machine and no time of the build, nor gRPC's pages of
// traces, which nobody serves.
func build(ctx context.Context, source string, about version, t target) (string, error) {
	out := filepath.Join(source, "..", t.OS+"_"+t.Arch, product)
	if t.OS == windows {
		out += ".exe"
	}
	module, err := run(ctx, source, nil, "go", "list", "-m")
	if err != nil {
		return "", err
	}
	vars := strings.TrimSpace(string(module)) + "/cmd/agentd/internal/cli."
	flags := fmt.Sprintf("-s -w -buildid= -X %[1]sversion=%[2]s -X %[1]scommit=%[3]s -X %[1]sdate=%[4]s", vars, about.Version, about.Commit, about.date())
	env := []string{"CGO_ENABLED=0", "GOOS=" + t.OS, "GOARCH=" + t.Arch, "GOFLAGS=-mod=readonly", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0"}
	_, err = run(ctx, source, env, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-buildvcs=false", "-ldflags", flags, "-o", out, "./cmd/agentd")
	return out, err
}

// makeExtras makes what is the same for every target: the texts, completions and man pages.
func makeExtras(ctx context.Context, source string, about version) ([]file, error) {
	var extras []file
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return nil, err
		}
		extras = append(extras, file{name: name, place: "/usr/share/doc/agentd/" + name, data: data, mode: 0o644})
	}
	own := target{runtime.GOOS, runtime.GOARCH}
	binary, err := build(ctx, source, about, own)
	if err != nil {
		return nil, err
	}
	for _, shell := range []struct{ name, place string }{
		{"bash", "/usr/share/bash-completion/completions/agentd"},
		{"zsh", "/usr/share/zsh/vendor-completions/_agentd"},
		{"fish", "/usr/share/fish/vendor_completions.d/agentd.fish"},
		{"powershell", ""},
	} {
		script, err := run(ctx, source, nil, binary, "completion", shell.name)
		if err != nil {
			return nil, err
		}
		extras = append(extras, file{name: "completions/agentd." + shell.name, place: shell.place, data: script, mode: 0o644})
	}
	pages, err := manual(ctx, source, about)
	return append(extras, pages...), err
}

// manual makes the man pages.
func manual(ctx context.Context, source string, about version) ([]file, error) {
	folder := filepath.Join(source, "..", "man")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, err
	}
	env := []string{"GOFLAGS=-mod=readonly", "GOWORK=off"}
	if _, err := run(ctx, source, env, "go", "run", "./cmd/agentd/internal/manual", folder, about.date(), about.Version); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var pages []file
	for _, e := range entries {
		page, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		packed, err := compress(page)
		if err != nil {
			return nil, err
		}
		name := e.Name() + ".gz"
		pages = append(pages, file{name: path.Join("man", name), place: "/usr/share/man/man1/" + name, data: packed, mode: 0o644})
	}
	if len(pages) == 0 {
		return nil, errors.New("there are no man pages")
	}
	return pages, nil
}

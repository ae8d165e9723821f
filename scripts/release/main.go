// Command release makes a release of the checkout in a folder, as `make release` does: static binaries for every target, in
// archives with completions and man pages; packages for Debian and for Red Hat; images that `docker load` takes; for each binary a
// bill of materials; the notices of what it is built from; and the checksums of all. It asks nobody but the module proxy, and makes
// everything twice, in two folders: a release whose halves differ in a byte is not one.
//
// It is a module of its own, so that whoever depends on agentd does not depend on what packs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("out", "dist", "folder for the release; it must not exist")
	only := flag.String("targets", "", "comma-separated targets, such as linux/amd64; empty is all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := release(ctx, flag.Arg(0), *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// release makes the release of a checkout twice, compares both, and leaves one in out.
func release(ctx context.Context, checkout, out, only string) error {
	if _, err := os.Lstat(out); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is there already: remove it, or choose another folder with --out", out)
	}
	targets, err := parseTargets(only)
	if err != nil {
		return err
	}
	about, err := readVersion(ctx, checkout)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "agentd-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // a temporary one
	var halves [2]string
	for i, name := range []string{"one", "the-other"} {
		source := filepath.Join(scratch, name, "source")
		halves[i] = filepath.Join(scratch, name, "dist")
		if err := export(ctx, checkout, about.Commit, source); err != nil {
			return err
		}
		if err := makeRelease(ctx, source, halves[i], about, targets); err != nil {
			return err
		}
	}
	if err := compare(halves[0], halves[1]); err != nil {
		return err
	}
	if err := os.CopyFS(out, os.DirFS(halves[0])); err != nil {
		return err
	}
	fmt.Printf("agentd %s, made twice and the same:\n%s", about.Version, mustRead(filepath.Join(out, checksums)))
	return nil
}

// makeRelease makes the release of a source tree in a folder.
func makeRelease(ctx context.Context, source, out string, about version, targets []target) error {
	if err := os.MkdirAll(out, 0o750); err != nil {
		return err
	}
	extras, err := makeExtras(ctx, source, about)
	if err != nil {
		return err
	}
	for _, t := range targets {
		fmt.Println("building", t)
		binary, err := build(ctx, source, about, t)
		if err != nil {
			return err
		}
		notices, err := collectNotices(ctx, source, binary)
		if err != nil {
			return err
		}
		p := program{about: about, target: t, binary: binary, extras: append(extras, notices)}
		if err := p.pack(out); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return writeChecksums(out)
}

// pack writes everything that a release has for one target.
func (p program) pack(out string) error {
	steps := []func(string) error{p.archive, p.billOfMaterials}
	if p.target.OS == linux {
		steps = append(steps, p.packages, p.image)
	}
	for _, step := range steps {
		if err := step(out); err != nil {
			return err
		}
	}
	return nil
}

// compare says which files of two folders differ.
func compare(one, other string) error {
	var differ []string
	names := map[string]bool{}
	for _, folder := range []string{one, other} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		for _, e := range entries {
			names[e.Name()] = true
		}
	}
	for name := range names {
		a, err1 := os.ReadFile(filepath.Join(one, name))
		b, err2 := os.ReadFile(filepath.Join(other, name))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(a, b) {
			differ = append(differ, name)
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("two builds differ in %s", strings.Join(differ, ", "))
	}
	return nil
}

func mustRead(file string) []byte {
	data, err := os.ReadFile(file)
	if err != nil {
		panic(err) // it was written by this process
	}
	return data
}

// run runs a program and returns what it prints.
func run(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Env = dir, &stderr, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}

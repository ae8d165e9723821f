package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// version is what a release says of itself.
type version struct {
	// Version is a semantic one with its "v": that of the commit's tag, else a pseudo-version above the last tag.
	Version, Commit string
	// Time is the commit's; every file of the release has it.
	Time time.Time
}

// number is the version without its "v".
func (v version) number() string { return strings.TrimPrefix(v.Version, "v") }

// date is Time as the program prints it.
func (v version) date() string { return v.Time.Format(time.RFC3339) }

// readVersion reads the version of a checkout, whose tree must be clean: a release is of a commit.
func readVersion(ctx context.Context, checkout string) (version, error) {
	git := func(args ...string) (string, error) {
		out, err := run(ctx, checkout, nil, "git", args...)
		return strings.TrimSpace(string(out)), err
	}
	changed, err := git("status", "--porcelain")
	if err != nil {
		return version{}, err
	}
	if changed != "" {
		return version{}, fmt.Errorf("commit or remove what is not committed; a release is of a commit:\n%s", changed)
	}
	commit, err1 := git("rev-parse", "HEAD")
	stamp, err2 := git("log", "-1", "--format=%cI")
	if err := errors.Join(err1, err2); err != nil {
		return version{}, err
	}
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return version{}, err
	}
	v := version{Commit: commit, Time: at.UTC()}
	described, err := git("describe", "--tags", "--match", "v[0-9]*", "--abbrev=0")
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		described = "" // no tag yet
	} else if err != nil {
		return version{}, err
	}
	v.Version = described
	if tagged, err := git("tag", "--points-at", "HEAD", "--list", described); err != nil || described == "" || tagged == "" {
		v.Version = module.PseudoVersion(semver.Major(described), described, v.Time, commit[:12])
	}
	if !semver.IsValid(v.Version) {
		return version{}, fmt.Errorf("tag %s: want a semantic version such as v0.1.0", described)
	}
	return v, nil
}

// export writes the files of a commit into a folder.
func export(ctx context.Context, checkout, commit, folder string) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	archive := filepath.Join(folder, "..", "source.tar")
	if _, err := run(ctx, checkout, nil, "git", "archive", "--output", archive, commit); err != nil {
		return err
	}
	_, err := run(ctx, folder, nil, "tar", "-xf", archive)
	return err
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The release of a commit with a tag is what its name says, twice the same, and each of its files is one that its readers take.
func TestRelease_IsReproducibleAndWhole(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the release of this test is for Linux, and runs here")
	}
	arch := runtime.GOARCH
	checkout := repository(t)
	git(t, checkout, "tag", "v9.8.7")
	out := filepath.Join(t.TempDir(), "dist")
	if err := release(t.Context(), checkout, out, "linux/"+arch); err != nil { // which compares two builds
		t.Fatal(err)
	}
	name := "agentd_9.8.7_linux_" + arch
	want := []string{"SHA256SUMS", name + ".cdx.json", name + ".deb", name + ".image.tar", name + ".rpm", name + ".tar.gz"}
	if diff := cmp.Diff(want, list(t, out)); diff != "" {
		t.Fatal(diff)
	}
	for line := range strings.Lines(string(read(t, filepath.Join(out, "SHA256SUMS")))) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(out, file)))); got != sum {
			t.Errorf("SHA256SUMS has %s for %s, which has %s", sum, file, got)
		}
	}
	unpacked := untar(t, out, name+".tar.gz")
	for _, file := range []string{"agentd", "LICENSE", "NOTICES", "CHANGELOG.md", "completions/agentd.bash", "man/agentd.1.gz", "man/agentd-runs-show.1.gz"} {
		if len(unpacked[name+"/"+file]) == 0 {
			t.Errorf("the archive has no %s; it has %v", file, slices.Sorted(maps.Keys(unpacked)))
		}
	}
	t.Run("binary", func(t *testing.T) { checkBinary(t, checkout, unpacked[name+"/agentd"]) })
	t.Run("materials", func(t *testing.T) {
		checkMaterials(t, read(t, filepath.Join(out, name+".cdx.json")), unpacked[name+"/NOTICES"])
	})
	t.Run("deb", func(t *testing.T) { checkDeb(t, filepath.Join(out, name+".deb")) })
	t.Run("rpm", func(t *testing.T) { checkRPM(t, read(t, filepath.Join(out, name+".rpm"))) })
	t.Run("image", func(t *testing.T) { checkImage(t, out, name+".image.tar", unpacked[name+"/agentd"]) })
}

// checkBinary runs the binary: it is static, and says of which commit it is.
func checkBinary(t *testing.T, checkout string, binary []byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary is not static")
		}
	}
	path := filepath.Join(t.TempDir(), "agentd")
	if err := os.WriteFile(path, binary, 0o700); err != nil {
		t.Fatal(err)
	}
	commit := git(t, checkout, "rev-parse", "HEAD")
	want := fmt.Sprintf("agentd version v9.8.7 (commit %.12s of 2026-11-22T10:20:30Z) %s %s/%s", commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, argument := range []string{"version", "--version"} {
		if got := command(t, "", path, argument); got != want {
			t.Errorf("agentd %s prints %q, want %q", argument, got, want)
		}
	}
}

// checkMaterials looks for a module that agentd cannot do without, in the bill of materials and in the notices.
func checkMaterials(t *testing.T, bill, notices []byte) {
	t.Helper()
	var bom struct {
		Format     string `json:"bomFormat"`
		Components []struct {
			Name, Version, PURL string
			Hashes              []struct{ Alg, Content string }
		}
	}
	if err := json.Unmarshal(bill, &bom); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, c := range bom.Components {
		if c.Name == "github.com/nats-io/nats-server/v2" {
			found = c.PURL == "pkg:golang/"+c.Name+"@"+c.Version && len(c.Hashes) == 1 && len(c.Hashes[0].Content) == 64
		}
	}
	if bom.Format != "CycloneDX" || !found {
		t.Errorf("the bill of materials is %.300s", bill)
	}
	if !bytes.Contains(notices, []byte("==== github.com/nats-io/nats-server/v2 ")) {
		t.Error("the notices do not name the NATS server")
	}
}

// checkDeb has Debian's own tool read the package, where it is.
func checkDeb(t *testing.T, path string) {
	t.Helper()
	dpkg, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	if got := command(t, "", dpkg, "--field", path, "Package", "Version", "Architecture"); got != "Package: agentd\nVersion: 9.8.7\nArchitecture: "+runtime.GOARCH {
		t.Errorf("the package says %s", got)
	}
	contents := command(t, "", dpkg, "--contents", path)
	for _, file := range []string{"./usr/bin/agentd", "./usr/share/man/man1/agentd.1.gz", "./usr/share/bash-completion/completions/agentd", "./usr/share/doc/agentd/LICENSE"} {
		if !strings.Contains(contents, " "+file+"\n") {
			t.Errorf("the package does not have %s:\n%s", file, contents)
		}
	}
}

// checkRPM looks at the package's lead: its magic number, and its name.
func checkRPM(t *testing.T, data []byte) {
	t.Helper()
	if !bytes.HasPrefix(data, []byte{0xed, 0xab, 0xee, 0xdb}) || !bytes.HasPrefix(data[10:], []byte("agentd-9.8.7")) {
		t.Errorf("the package begins with %q", data[:96])
	}
}

// checkImage reads the image as `docker load` does: by manifest.json, and as a layout.
func checkImage(t *testing.T, out, name string, binary []byte) {
	t.Helper()
	path := filepath.Join(out, name)
	old, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for file, data := range untar(t, out, name) {
		at := filepath.Join(folder, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %+v, %v", manifest, err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err1 := img.ConfigName()
	oldConfig, err2 := old.ConfigName()
	if err := errors.Join(err1, err2); err != nil || config != oldConfig {
		t.Errorf("the layout has image %s, manifest.json %s, %v", config, oldConfig, err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the image has layers %v, %v", layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	files := untarFrom(t, content)
	if !bytes.Equal(files["agentd"], binary) {
		t.Error("the image has another binary than the archive")
	}
	if !bytes.HasPrefix(files["etc/ssl/certs/ca-certificates.crt"], []byte("-----BEGIN CERTIFICATE-----")) {
		t.Error("the image has no certificates")
	}
	settings, err := img.ConfigFile()
	if err != nil || settings.Config.User != "65532:65532" || !slices.Equal(settings.Config.Entrypoint, []string{"/agentd"}) {
		t.Errorf("the image runs as %+v, %v", settings, err)
	}
}

// A release is of a commit: its version is the tag's, else a pseudo-version above the last tag.
func TestVersion_IsThatOfGit(t *testing.T) {
	checkout := emptyRepository(t)
	of := func() string {
		t.Helper()
		v, err := readVersion(t.Context(), checkout)
		if err != nil {
			t.Fatal(err)
		}
		return v.Version
	}
	head := git(t, checkout, "rev-parse", "HEAD")[:12]
	if got, want := of(), "v0.0.0-20261122102030-"+head; got != want {
		t.Errorf("without a tag the version is %s, want %s", got, want)
	}
	git(t, checkout, "tag", "v0.1.0")
	if got := of(); got != "v0.1.0" {
		t.Errorf("with a tag the version is %s", got)
	}
	write(t, filepath.Join(checkout, "more"), "more")
	if _, err := readVersion(t.Context(), checkout); err == nil || !strings.Contains(err.Error(), "more") {
		t.Errorf("what is not committed: %v", err)
	}
	commitAll(t, checkout)
	head = git(t, checkout, "rev-parse", "HEAD")[:12]
	if got, want := of(), "v0.1.1-0.20261122102030-"+head; got != want {
		t.Errorf("after the tag the version is %s, want %s", got, want)
	}
}

func TestCompare_NamesWhatDiffers(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	write(t, filepath.Join(one, "same"), "1")
	write(t, filepath.Join(other, "same"), "1")
	if err := compare(one, other); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(other, "only"), "")
	if err := compare(one, other); err == nil || !strings.Contains(err.Error(), "only") {
		t.Errorf("a file that one lacks: %v", err)
	}
	write(t, filepath.Join(one, "only"), "1")
	if err := compare(one, other); err == nil || !strings.Contains(err.Error(), "only") {
		t.Errorf("a file that differs: %v", err)
	}
}

// Whoever clones the repository gets what people wrote, and no program that was made of it: it would be in every clone for ever.
func TestSource_HasNoPrograms(t *testing.T) {
	t.Parallel()
	const largest = 1 << 20
	for file, data := range checkedOut(t, "--cached") {
		if len(data) > largest {
			t.Errorf("%s has %d bytes, more than %d", file, len(data), largest)
		}
		for _, program := range []string{"\x7fELF", "\xcf\xfa\xed\xfe", "MZ"} {
			if strings.HasPrefix(data, program) {
				t.Errorf("%s is a program", file)
			}
		}
	}
}

// checkedOut are files of this checkout and what they have, those that git ls-files lists when it is asked so.
func checkedOut(t *testing.T, which ...string) iter.Seq2[string, string] {
	t.Helper()
	needCheckout(t, "../..")
	listed := git(t, "../..", append([]string{"ls-files"}, which...)...)
	return func(yield func(file, data string) bool) {
		for file := range strings.Lines(listed) {
			file = strings.TrimSpace(file)
			data, err := os.ReadFile(filepath.Join("../..", file))
			if errors.Is(err, os.ErrNotExist) {
				continue // removed, and not committed yet
			}
			if err != nil {
				t.Fatal(err)
			}
			if !yield(file, string(data)) {
				return
			}
		}
	}
}

// repository is a copy of this checkout's files, committed.
func repository(t *testing.T) string {
	t.Helper()
	dir := emptyRepository(t)
	for file, data := range checkedOut(t, "--cached", "--others", "--exclude-standard") {
		write(t, filepath.Join(dir, file), data)
	}
	commitAll(t, dir)
	return dir
}

func emptyRepository(t *testing.T) string {
	t.Helper()
	needGit(t)
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	commitAll(t, dir)
	return dir
}

func commitAll(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "test: a commit")
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return command(t, dir, "git", append([]string{"-c", "user.name=agentd", "-c", "user.email=agentd@example.com"}, args...)...)
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE="+time.Date(2026, 11, 22, 10, 20, 30, 0, time.UTC).Format(time.RFC3339))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

func untar(t *testing.T, folder, name string) map[string][]byte {
	t.Helper()
	var r io.Reader = bytes.NewReader(read(t, filepath.Join(folder, name)))
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		r = z
	}
	return untarFrom(t, r)
}

func untarFrom(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for reader := tar.NewReader(r); ; {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

func list(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
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
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

package deploy_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// standIns are images made of local binaries, on scratch: nothing is pulled. The values are what docker-compose.yml has
// for names of images.
func standIns(t *testing.T, provider *testcontainers.DockerProvider) map[string]string {
	t.Helper()
	bin := t.TempDir()
	compile(t, "../..", filepath.Join(bin, "agentd"), "./cmd/agentd")
	compile(t, "../../examples/traveldesk", filepath.Join(bin, "traveldesk"), ".")
	compile(t, "../..", filepath.Join(bin, "nats-server"), "github.com/nats-io/nats-server/v2")
	compile(t, ".", filepath.Join(bin, "collector"), "./collector")
	dockerfile, err := os.ReadFile("../../deploy/Dockerfile.local")
	if err != nil {
		t.Fatal(err)
	}
	programs := folder(t, bin)
	program := func(name string) string {
		return "FROM scratch\nCOPY " + name + " /" + name + "\nENTRYPOINT [\"/" + name + "\"]\n"
	}
	return map[string]string{
		"AGENTD_IMAGE":     image(t, provider, "agentd", string(dockerfile), "agentd", programs),
		"TRAVELDESK_IMAGE": image(t, provider, "traveldesk", string(dockerfile), "traveldesk", programs),
		"NATS_IMAGE":       image(t, provider, "nats", program("nats-server"), "", programs),
		"COLLECTOR_IMAGE":  image(t, provider, "collector", program("collector"), "", programs),
		"REDIS_IMAGE": image(t, provider, "redis", "FROM scratch\nCOPY . /\nENV PATH=/usr/bin\n", "",
			withLibraries(t, "redis-server")),
	}
}

// compile builds a static binary in a module's folder.
func compile(t *testing.T, dir, to, pkg string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", to, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
}

// folder has the files of a folder.
func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		files[e.Name()] = filepath.Join(dir, e.Name())
	}
	return files
}

// withLibraries has a program of this machine with the libraries that it is linked to, where they are here.
func withLibraries(t *testing.T, program string) map[string]string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is missing, which the image is made of", program)
	}
	out, err := exec.CommandContext(t.Context(), "ldd", path).Output()
	if err != nil {
		t.Fatalf("ldd %s: %v", path, err)
	}
	files := map[string]string{"usr/bin/" + program: path}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			files[strings.TrimPrefix(word, "/")] = word
		}
	}
	return files
}

// image builds an image from files by their names in the context.
func image(t *testing.T, provider *testcontainers.DockerProvider, name, dockerfile, target string, files map[string]string) string {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(name string, mode int64, content []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	add("Dockerfile", 0o644, []byte(dockerfile))
	for name, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		add(name, 0o755, content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tag, err := provider.BuildImage(t.Context(), &testcontainers.ContainerRequest{FromDockerfile: testcontainers.FromDockerfile{
		ContextArchive: bytes.NewReader(archive.Bytes()), Repo: "agentd-test-" + name, Tag: "local", KeepImage: true,
		BuildLogWriter: io.Discard, BuildOptionsModifier: targets(target),
	}})
	if err != nil {
		t.Fatalf("build image %s: %v", name, err)
	}
	return tag
}

// localEngine connects to the local Docker engine, or skips the test.
func localEngine(t *testing.T) *testcontainers.DockerProvider {
	t.Helper()
	// Its helper would have to be pulled. The test removes what it makes.
	t.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	provider, err := testcontainers.NewDockerProvider()
	if err == nil {
		err = provider.Health(context.WithoutCancel(t.Context()))
	}
	if err != nil {
		t.Skipf("no Docker engine here: %v", err)
	}
	t.Cleanup(func() {
		if err := provider.Close(); err != nil {
			t.Error(err)
		}
	})
	return provider
}

// targets builds up to a stage.
func targets(stage string) func(*client.ImageBuildOptions) {
	return func(o *client.ImageBuildOptions) { o.Target = stage }
}

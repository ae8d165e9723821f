package deploy_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// mostBytes bounds the image of agentd: what a node has to pull before a worker starts.
const mostBytes = 100 << 20

// The Dockerfile itself is built, with this machine's Go toolchain in place of the image that cannot be pulled, on scratch.
func TestDockerfile_BuildsASmallImageThatIsNotRoot(t *testing.T) {
	provider := localEngine(t)
	toolchain := toolchain(t, provider.Client())
	for target, check := range map[string]func(*testing.T, *testcontainers.DockerProvider, string){
		"agentd": checkAgentd, "traveldesk": checkTraveldesk,
	} {
		tag := dockerfile(t, provider, toolchain, target)
		found, err := provider.Client().ImageInspect(t.Context(), tag)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f MB", target, float64(found.Size)/1e6)
		if found.Size > mostBytes {
			t.Errorf("the image of %s has %d bytes, more than %d", target, found.Size, mostBytes)
		}
		if found.Config.User != "65532:65532" {
			t.Errorf("%s runs as user %q", target, found.Config.User)
		}
		check(t, provider, tag)
	}
}

func checkAgentd(t *testing.T, provider *testcontainers.DockerProvider, tag string) {
	t.Helper()
	if code, out := once(t, provider, tag, nil, "version"); code != 0 || !strings.Contains(out, "v1.2.3") {
		t.Errorf("agentd version ends with %d: %s", code, out)
	}
	// Nothing listens in that container; 1 is what a health check reports of a worker that is not healthy.
	if code, out := once(t, provider, tag, nil, "healthcheck"); code != 1 || !strings.Contains(out, "8080") {
		t.Errorf("agentd healthcheck ends with %d: %s", code, out)
	}
	found, err := provider.Client().ImageInspect(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	if got := found.Config.Labels["org.opencontainers.image.version"]; got != "v1.2.3" {
		t.Errorf("the image says it is version %q", got)
	}
	if _, ok := found.Config.ExposedPorts["8080/tcp"]; !ok || found.Config.Healthcheck == nil {
		t.Errorf("the image exposes %v and is checked by %v", found.Config.ExposedPorts, found.Config.Healthcheck)
	}
}

func checkTraveldesk(t *testing.T, provider *testcontainers.DockerProvider, tag string) {
	t.Helper()
	if code, out := once(t, provider, tag, map[string]string{"NATS_URL": "nats://%zz"}); code != 1 || !strings.Contains(out, "NATS_URL") {
		t.Errorf("traveldesk with a wrong address ends with %d: %s", code, out)
	}
}

// once runs a container to its end, as docker-compose.yml runs it, and returns its exit code and what it wrote.
func once(t *testing.T, provider *testcontainers.DockerProvider, image string, env map[string]string, command ...string) (int, string) {
	t.Helper()
	w := &world{t: t}
	c, err := provider.RunContainer(t.Context(), testcontainers.ContainerRequest{
		Image: image, Cmd: command, Env: env,
		HostConfigModifier: func(h *container.HostConfig) {
			h.ReadonlyRootfs, h.CapDrop, h.SecurityOpt = true, []string{"ALL"}, []string{"no-new-privileges:true"}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.remove(image, c) })
	var state *container.State
	w.eventually(strings.Join(command, " ")+" ends", func() bool {
		state, err = c.State(t.Context())
		return err != nil || !state.Running
	})
	if err != nil {
		t.Fatal(err)
	}
	return state.ExitCode, w.logs(c)
}

// dockerfile builds a stage of deploy/Dockerfile from the sources as they are.
func dockerfile(t *testing.T, provider *testcontainers.DockerProvider, toolchain, target string) string {
	t.Helper()
	scratch, version := "scratch", "v1.2.3"
	var log bytes.Buffer
	tag, err := provider.BuildImage(t.Context(), &testcontainers.ContainerRequest{FromDockerfile: testcontainers.FromDockerfile{
		Context: "../..", Dockerfile: "deploy/Dockerfile", Repo: "agentd-test-dockerfile-" + target, Tag: "local", KeepImage: true,
		BuildArgs:      map[string]*string{"BASE": &scratch, "GO_IMAGE": &toolchain, "VERSION": &version},
		BuildLogWriter: &log,
		BuildOptionsModifier: func(o *client.ImageBuildOptions) {
			o.Target, o.Version = target, build.BuilderBuildKit
		},
	}})
	if err != nil {
		t.Fatalf("build %s: %v\n%s", target, err, log.String())
	}
	return tag
}

// toolchain is an image of this machine's Go toolchain, a shell, and the modules that the sources need.
func toolchain(t *testing.T, engine client.APIClient) string {
	t.Helper()
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeToolchain(t, w)) }()
	const name = "agentd-test-toolchain:local"
	imported, err := engine.ImageImport(t.Context(), client.ImageImportSource{Source: r, SourceName: "-"}, name, client.ImageImportOptions{
		Changes: []string{
			"ENV PATH=/usr/local/go/bin:/bin", "ENV GOTOOLCHAIN=local", "ENV HOME=/root",
			"ENV GOPROXY=file:///modules", "ENV GONOSUMDB=*", "ENV GOFLAGS=-buildvcs=false",
		},
	})
	if err != nil {
		t.Fatalf("import the toolchain: %v", err)
	}
	defer imported.Close()
	if text, err := io.ReadAll(imported); err != nil || strings.Contains(string(text), `"error"`) {
		t.Fatalf("import the toolchain: %s %v", text, err)
	}
	return name
}

// rootfs is the file system of an image that is being written.
type rootfs struct {
	*tar.Writer
	has map[string]bool
}

func writeToolchain(t *testing.T, to io.Writer) error {
	w := rootfs{tar.NewWriter(to), map[string]bool{}}
	root, err := goEnv(t, "GOROOT")
	if err != nil {
		return err
	}
	for _, dir := range []string{"tmp", "root"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o1777}); err != nil {
			return err
		}
	}
	for _, part := range []string{"bin", "src", "lib", "pkg/tool", "pkg/include", "VERSION", "go.env"} {
		if err := w.addTree(filepath.Join(root, part), "usr/local/go/"+part, everyFile); err != nil {
			return err
		}
	}
	for name, path := range withLibraries(t, "sh") {
		if name = strings.Replace(name, "usr/bin/", "bin/", 1); filepath.Base(path) == "sh" {
			name = "bin/sh"
		}
		if err := w.addFile(path, name); err != nil {
			return err
		}
	}
	if err := w.addTree(compiled(t), "root/.cache/go-build", everyFile); err != nil {
		return err
	}
	cache, err := goEnv(t, "GOMODCACHE")
	if err != nil {
		return err
	}
	cache = filepath.Join(cache, "cache", "download")
	// Of the versions that were not chosen, too.
	if err := w.addTree(cache, "modules", func(path string) bool { return filepath.Ext(path) == ".mod" }); err != nil {
		return err
	}
	for _, module := range []string{"../..", "../../examples/traveldesk"} {
		if err := w.addModules(t, cache, module); err != nil {
			return err
		}
	}
	return w.Close()
}

// compiled is a build cache that is filled as the Dockerfile builds, so that only its first use takes minutes. Go
// removes from it what is not used any more.
func compiled(t *testing.T) string {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "agentd-test-deploy")
	for _, module := range []string{"../../cmd/agentd", "../../examples/traveldesk"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(t.TempDir(), "built"), ".")
		cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0", "GOCACHE="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", module, err, out)
		}
	}
	return dir
}

func goEnv(t *testing.T, name string) (string, error) {
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	return strings.TrimSpace(string(out)), err
}

// addModules has what `go mod download` asks a proxy for: the modules of the module in dir.
func (w rootfs) addModules(t *testing.T, cache, dir string) error {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go mod download in %s: %w", dir, err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Info, Zip string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for _, path := range []string{m.Info, m.Zip} {
			if name, err := filepath.Rel(cache, path); err == nil && filepath.IsLocal(name) { // not every module has both
				if err := w.addFile(path, "modules/"+name); err != nil {
					return err
				}
			}
		}
	}
}

func everyFile(string) bool { return true }

// addTree has the files below from that are wanted.
func (w rootfs) addTree(from, to string, wanted func(path string) bool) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !wanted(path) {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return w.addFile(path, filepath.Join(to, name))
	})
}

func (w rootfs) addFile(from, to string) error {
	if w.has[to] {
		return nil
	}
	w.has[to] = true
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	about, err := f.Stat() // of what a link leads to
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: to, Mode: int64(about.Mode().Perm()), Size: about.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

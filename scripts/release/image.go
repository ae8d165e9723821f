package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image writes an image with nothing in it but the binary and the certificates of authorities, as deploy/Dockerfile makes it:
// an OCI image layout in a tar, with the manifest.json that older versions of `docker load` ask for.
func (p program) image(out string) error {
	img, err := p.assemble()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "agentd-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // a temporary one
	at, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	tag := product + ":" + p.about.number()
	named := map[string]string{"io.containerd.image.name": "docker.io/library/" + tag, "org.opencontainers.image.ref.name": p.about.number()}
	platform := v1.Platform{OS: p.target.OS, Architecture: p.target.Arch}
	if err := at.AppendImage(img, layout.WithAnnotations(named), layout.WithPlatform(platform)); err != nil {
		return err
	}
	if err := forOlderDocker(at, img, tag); err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := p.folder(&packed, folder); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, p.name()+".image.tar"), packed.Bytes(), 0o644)
}

// assemble makes the image.
func (p program) assemble() (v1.Image, error) {
	binary, err := os.ReadFile(p.binary)
	if err != nil {
		return nil, err
	}
	var authorities bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, f := range []file{
		{name: product, data: binary, mode: 0o755}, {name: "etc/ssl/certs/ca-certificates.crt", data: authorities.Bytes(), mode: 0o644},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: p.about.Time}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, p.config(img))
}

// config is what deploy/Dockerfile says.
func (p program) config(img v1.Image) *v1.ConfigFile {
	config, err := img.ConfigFile()
	if err != nil {
		panic(err) // it was made by this process
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.target.OS, p.target.Arch, v1.Time{Time: p.about.Time}
	config.Config = v1.Config{
		User: "65532:65532", WorkingDir: "/etc/agentd", Entrypoint: []string{"/agentd"}, Cmd: []string{"serve", "--http", ":8080"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}}, StopSignal: "SIGTERM",
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/agentd", "healthcheck"}, Interval: 10 * time.Second, Timeout: 6 * time.Second, StartPeriod: 30 * time.Second,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title": product, "org.opencontainers.image.description": summary,
			"org.opencontainers.image.version": p.about.number(), "org.opencontainers.image.revision": p.about.Commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return config
}

// forOlderDocker adds to a layout the manifest.json by which versions of Docker before 25 find its image.
func forOlderDocker(at layout.Path, img v1.Image, tag string) error {
	name, err := img.ConfigName()
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	d := tarball.Descriptor{Config: blob(name), RepoTags: []string{tag}}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		d.Layers = append(d.Layers, blob(digest))
	}
	manifest, err := json.Marshal(tarball.Manifest{d})
	if err != nil {
		return err
	}
	return at.WriteFile("manifest.json", manifest, 0o644)
}

// folder writes the files of a folder as a tar.
func (p program) folder(w io.Writer, folder string) error {
	t := tar.NewWriter(w)
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: p.about.Time}); err != nil {
			return err
		}
		_, err = t.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return t.Close()
}

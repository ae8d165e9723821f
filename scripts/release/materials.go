package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials writes which modules the binary is made of, as the binary itself says: CycloneDX in JSON.
func (p program) billOfMaterials(out string) error {
	info, err := buildinfo.ReadFile(p.binary)
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	main := cyclonedx.Component{
		BOMRef: "pkg:golang/" + info.Main.Path + "@" + p.about.Version, Type: cyclonedx.ComponentTypeApplication,
		Name: product, Version: p.about.Version, PackageURL: "pkg:golang/" + info.Main.Path + "@" + p.about.Version,
	}
	bom.Metadata = &cyclonedx.Metadata{Timestamp: p.about.date(), Component: &main}
	components := []cyclonedx.Component{{
		BOMRef: "pkg:golang/std@" + info.GoVersion, Type: cyclonedx.ComponentTypeLibrary, Name: "std",
		Version: info.GoVersion, PackageURL: "pkg:golang/std@" + info.GoVersion,
	}}
	for _, m := range info.Deps {
		c, err := component(m)
		if err != nil {
			return err
		}
		components = append(components, c)
	}
	bom.Components = &components
	var text bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	if err := encoder.Encode(bom); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, p.name()+".cdx.json"), text.Bytes(), 0o644)
}

// component is a module with the hash that go.sum has of it.
func component(m *debug.Module) (cyclonedx.Component, error) {
	if m.Replace != nil {
		return cyclonedx.Component{}, fmt.Errorf("%s is replaced by %s: a release is made of what others can get", m.Path, m.Replace.Path)
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return cyclonedx.Component{}, fmt.Errorf("checksum of %s: %w", m.Path, err)
	}
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	return cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl,
		Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}},
	}, nil
}

// noticeFile matches the files whose texts a distribution must carry.
var noticeFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)`)

// collectNotices collects the licences and notices of the modules that a binary is made of.
func collectNotices(ctx context.Context, source, binary string) (file, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return file{}, err
	}
	goroot, err := run(ctx, source, nil, "go", "env", "GOROOT")
	if err != nil {
		return file{}, err
	}
	folders := []struct{ name, path string }{{"Go " + info.GoVersion, strings.TrimSpace(string(goroot))}}
	for _, m := range info.Deps {
		out, err := run(ctx, source, nil, "go", "mod", "download", "-json", m.Path+"@"+m.Version)
		if err != nil {
			return file{}, err
		}
		var downloaded struct{ Dir string }
		if err := json.Unmarshal(out, &downloaded); err != nil {
			return file{}, err
		}
		folders = append(folders, struct{ name, path string }{m.Path + " " + m.Version, downloaded.Dir})
	}
	var text bytes.Buffer
	for _, folder := range folders {
		entries, err := os.ReadDir(folder.path)
		if err != nil {
			return file{}, err
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !noticeFile.MatchString(e.Name()) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(folder.path, e.Name()))
			if err != nil {
				return file{}, err
			}
			found = true
			fmt.Fprintf(&text, "==== %s: %s\n\n%s\n", folder.name, e.Name(), bytes.TrimSpace(data))
		}
		if !found {
			return file{}, fmt.Errorf("%s has no licence", folder.name)
		}
	}
	return file{name: "NOTICES", place: "/usr/share/doc/agentd/NOTICES", data: text.Bytes(), mode: 0o644}, nil
}

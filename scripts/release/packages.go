package main

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

// packages writes a package for Debian and one for Red Hat.
func (p program) packages(out string) error {
	staging, err := os.MkdirTemp("", "agentd-package-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staging) }() // a temporary one
	contents := files.Contents{{Source: p.binary, Destination: "/usr/bin/agentd", FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: p.about.Time}}}
	for _, f := range p.extras {
		if f.place == "" {
			continue
		}
		at := filepath.Join(staging, filepath.FromSlash(f.place))
		if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(at, f.data, f.mode); err != nil {
			return err
		}
		contents = append(contents, &files.Content{
			Source: at, Destination: f.place, FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: p.about.Time},
		})
	}
	for _, format := range []string{"deb", "rpm"} {
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: product, Arch: p.target.Arch, Platform: p.target.OS, Version: p.about.number(), Section: "net", Priority: "optional",
			Maintainer: "The agentd authors", Description: summary, License: "Apache-2.0",
			MTime: p.about.Time, DisableGlobbing: true,
			Overridables: nfpm.Overridables{Contents: contents, RPM: nfpm.RPM{BuildHost: product}},
		})
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		var packed bytes.Buffer
		if err := packager.Package(info, &packed); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, p.name()+"."+format), packed.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// checksums is the file of the release that has the checksums of the others, as `sha256sum -c` reads them.
const checksums = "SHA256SUMS"

// archive writes the program and what lies beside it, for those who install it by hand.
func (p program) archive(out string) error {
	binary, err := os.ReadFile(p.binary)
	if err != nil {
		return err
	}
	all := append([]file{{name: filepath.Base(p.binary), data: binary, mode: 0o755}}, p.extras...)
	write, extension := p.tar, ".tar.gz"
	if p.target.OS == windows {
		write, extension = p.zip, ".zip"
	}
	var packed bytes.Buffer
	if err := write(&packed, all); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, p.name()+extension), packed.Bytes(), 0o644)
}

func (p program) tar(w io.Writer, files []file) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: p.name() + "/" + f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: p.about.Time, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

func (p program) zip(w io.Writer, files []file) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: p.name() + "/" + f.name, Method: zip.Deflate, Modified: p.about.Time}
		h.SetMode(f.mode)
		into, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := into.Write(f.data); err != nil {
			return err
		}
	}
	return z.Close()
}

// compress packs a man page.
func compress(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	err = z.Close()
	return packed.Bytes(), err
}

// writeChecksums writes the checksums of all files of a release.
func writeChecksums(out string) error {
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return os.WriteFile(filepath.Join(out, checksums), []byte(lines.String()), 0o644)
}

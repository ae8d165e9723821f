// Package setback gives NATS servers back older files of those streams whose ends a server may forget, because the journals of runs
// bring them back (ADR 28).
package setback

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// Zones are those whose streams may be set back, in a layout.
func Zones(l streams.Layout) []streams.Zone {
	var zones []streams.Zone
	for _, whole := range streams.Rebuildable {
		zones = append(zones, l.Zones(whole)...)
	}
	return zones
}

// Files are the contents of the files of a stream, by their names within its folder.
type Files map[string][]byte

// Folder is where the server that has its data in dir keeps a zone's stream.
func Folder(dir string, z streams.Zone) string {
	return filepath.Join(dir, "jetstream", "$G", "streams", streams.Name(wire.DefaultSubjects(), z))
}

// Take reads the files of a zone's stream as they are. While the server writes them, some come out older than others, as after a loss of
// power.
func Take(dir string, z streams.Zone) (Files, error) {
	files := Files{}
	root := Folder(dir, z)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && entry.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was a temporary one
		}
		name, _ := filepath.Rel(root, path)
		files[name] = data
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("copy stream of %s: %w", z, err)
	}
	return files, nil
}

// Put has the stream have files, and no others. The server must not run.
func Put(dir string, z streams.Zone, files Files) error {
	root := Folder(dir, z)
	err := os.RemoveAll(root)
	for name, data := range files {
		path := filepath.Join(root, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, data, 0o600))
	}
	if err != nil {
		return fmt.Errorf("set stream of %s back: %w", z, err)
	}
	return nil
}

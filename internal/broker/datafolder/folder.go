// Package datafolder is what programs find in the data folder of an embedded NATS server: whether one runs on it, and where.
package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"agentd/sdk"
)

// The files in the data folder of an embedded server that are ours: the lock of whoever runs on it, and its client URL.
const (
	LockFile    = "lock"
	AddressFile = "address"
)

// ServerName is the name of every embedded server: diagnosis knows it by this name.
const ServerName = "agentd-embedded"

// ReadAddress returns the client URL of the server that runs on dir, or *sdk.Error with CodeUnavailable if none does, even
// if one that was killed left its address there.
func ReadAddress(dir string) (string, error) {
	none := sdk.Errorf(sdk.CodeUnavailable, "no server with a port runs on the data folder %s; start one with: agentd dev", dir)
	text, err := os.ReadFile(filepath.Join(dir, AddressFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", none
	}
	if err != nil {
		return "", fmt.Errorf("read the server's address: %w", err)
	}
	lock := flock.New(filepath.Join(dir, LockFile))
	unused, err := lock.TryRLock()
	if err != nil {
		return "", fmt.Errorf("look whether a server runs on %s: %w", dir, err)
	}
	if unused {
		return "", errors.Join(none, lock.Close())
	}
	return strings.TrimSpace(string(text)), lock.Close()
}

// Package datafolder is what programs find in the data folder of an embedded NATS server: whether one runs on it, and where, and which
// ports are its own.
package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"agentd/sdk"
)

// The files in the data folder of an embedded server that are ours: the lock of whoever runs on it, and its client URL.
const (
	LockFile    = "lock"
	AddressFile = "address"
)

// The files that keep the ports over restarts, of the server and of the console: who has their addresses finds them there again.
const (
	PortFile        = "port"
	ConsolePortFile = "console-port"
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

// Port is what a file of dir keeps; 0 is none, or none that can be read: whoever listens chooses one then.
func Port(dir, file string) int {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}

// KeepPort keeps in a file of dir where something listens.
func KeepPort(dir, file string, at net.Addr) error {
	_, port, err := net.SplitHostPort(at.String())
	if err == nil {
		err = WriteFile(filepath.Join(dir, file), port+"\n")
	}
	if err != nil {
		return fmt.Errorf("keep the port in %s: %w", dir, err)
	}
	return nil
}

// WriteFile writes atomically, so that a reader never sees half an address.
func WriteFile(path, text string) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

package survey

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"agentd/internal/broker/datafolder"
	"agentd/internal/finding"
)

// CheckFolder looks whether the data folder of an embedded server is safe: whether its lock works, and whether a server
// runs on it without holding the lock, beside which another could be started.
func CheckFolder(dir string) []finding.Finding {
	path := filepath.Join(dir, datafolder.LockFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil // never used
	}
	lock := flock.New(path)
	free, err := lock.TryRLock()
	if err == nil {
		err = lock.Close()
	}
	if err != nil {
		return []finding.Finding{finding.Error("folder_lock", fmt.Sprintf("data folder %s cannot be locked (%v): two servers on it would destroy it", dir, err),
			"move it to a local file system that supports locks")}
	}
	if address := listening(dir); free && address != "" {
		return []finding.Finding{finding.Warning("folder_unlocked",
			fmt.Sprintf("something listens on %s, the address in data folder %s, but no server holds the folder's lock", address, dir),
			"make sure that no other server uses the folder, then start agentd dev again")}
	}
	return nil
}

// listening is the address in the folder, if something listens there.
func listening(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, datafolder.AddressFile))
	if err != nil {
		return ""
	}
	address := strings.TrimSpace(string(text))
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", parsed.Host)
	if err != nil {
		return ""
	}
	_ = conn.Close() // nothing was sent
	return address
}

package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"agentd/test/missing"
)

// nobody is the id of a user who owns nothing.
const nobody = 65534

// asNobody calls do on a thread whose access to files is that of a user who owns nothing.
func asNobody(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := syscall.Setfsuid(nobody); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// On a volume that several users write to, the files of another one are made anew if others may read them, and else left alone.
func TestKeepFromOthers_FilesOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		missing.Optional(t, "only root can be another user")
	}
	for name, test := range map[string]struct {
		mode os.FileMode
		kept bool
	}{
		"nobody else reads them": {0o600, true},
		"the group reads them":   {0o660, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for dir := folder; dir != filepath.Dir(filepath.Dir(folder)); dir = filepath.Dir(dir) {
				if err := os.Chmod(dir, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(folder, "runs.db")
			for _, suffix := range []string{"", "-wal"} {
				err := os.WriteFile(path+suffix, []byte("an index"), test.mode)
				if err := errors.Join(err, os.Chmod(path+suffix, test.mode)); err != nil {
					t.Fatal(err)
				}
			}
			if err := asNobody(func() error { return os.Chmod(path, 0o600) }); !errors.Is(err, os.ErrPermission) {
				t.Fatalf("whoever does not own a file changes its mode: %v", err)
			}
			if err := asNobody(func() error { return keepFromOthers(path) }); err != nil {
				t.Error(err)
			}
			for _, suffix := range []string{"", "-wal"} {
				if _, err := os.Stat(path + suffix); (err == nil) != test.kept {
					t.Errorf("runs.db%s: %v; want it kept: %t", suffix, err, test.kept)
				}
			}
		})
	}
}

package survey

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/datafolder"
	"agentd/internal/broker/embedded"
	"agentd/test/ports"
)

func TestCheckFolder(t *testing.T) {
	t.Parallel()
	check := func(when, dir string, want ...string) {
		t.Helper()
		var got []string
		for _, f := range CheckFolder(dir) {
			got = append(got, f.Code)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	dir := brokertest.Dir(t)
	check("never used", filepath.Join(dir, "none"))
	s := brokertest.Server(t, embedded.Options{Dir: dir, Listen: true, Port: ports.Free(t)})
	check("in use", dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check("not in use", dir)

	// What a killed server leaves behind, first alone and then with another program on its port.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := filepath.Join(dir, datafolder.AddressFile)
	if err := os.WriteFile(address, []byte("nats://"+l.Addr().String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("listening without the lock", dir, "folder_unlocked")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	check("killed", dir)

	lock := filepath.Join(dir, datafolder.LockFile)
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(lock, 0o700); err != nil {
		t.Fatal(err)
	}
	check("cannot be locked", dir, "folder_lock")
}

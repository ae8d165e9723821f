package counts

import (
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/test/killed"
)

// overTCP reaches a server in another process.
type overTCP struct{ address string }

func (s overTCP) InProcessConn() (net.Conn, error) {
	return (&net.Dialer{}).DialContext(context.Background(), "tcp", s.address)
}

// syncedBlock is the sync of messages in what strace writes, with their stream.
var syncedBlock = regexp.MustCompile(`sync\([^)]*/streams/AGENTD_([A-Z]+)/msgs/[0-9]+\.blk>`)

// A server that syncs every write does so for what comes from outside: the init event, and the answers. With journals in JetStream it does for
// each of their entries. What follows from journals is confirmed before it is written.
func TestSyncs_OfARun(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skipf("syncs are counted with strace: %v", err)
	}
	for store, of := range map[string]struct {
		open openStore
		want map[string]int
	}{
		"redis":     {redisServer, map[string]int{"START": 1, "IN": turns}},
		"jetstream": {jetStream, map[string]int{"START": 1, "IN": turns, "RUN": 5}},
	} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			server := killed.New(t)
			server.Traced = filepath.Join(t.TempDir(), "syncs")
			server.Start()
			at, err := url.Parse(server.URL())
			check(t, err)
			s := startOn(t, overTCP{at.Host}, of.open, usual)
			s.run("the first, which connects and learns")
			s.settle()
			traced := func() string {
				data, err := os.ReadFile(server.Traced)
				check(t, err)
				return string(data)
			}
			before := len(traced())
			s.run("another")
			s.settle()
			got := map[string]int{}
			for _, m := range syncedBlock.FindAllStringSubmatch(traced()[before:], -1) {
				got[m[1]]++
			}
			if diff := cmp.Diff(of.want, got); diff != "" {
				t.Errorf("syncs of messages (-want +got):\n%s", diff)
			}
		})
	}
}

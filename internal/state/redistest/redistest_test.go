package redistest_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentd/internal/state/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask sends one inline command and returns the first line of the answer.
func ask(t *testing.T, addr, command string) string {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func TestServer_SurvivesKill(t *testing.T) {
	t.Parallel()
	s := redistest.StartServer(t)
	if got := ask(t, s.Addr(), "SET key value"); got != "+OK" {
		t.Fatalf("SET: %s", got)
	}
	s.Kill()
	s.Kill()
	if got := ask(t, s.Addr(), "PING"); !strings.Contains(got, "refused") {
		t.Errorf("PING to a killed server: %s", got)
	}
	s.Restart()
	if got := ask(t, s.Addr(), "STRLEN key"); got != ":5" {
		t.Errorf("STRLEN after the restart: %s", got)
	}
}

func TestStart_SeveralServersAtOnce(t *testing.T) {
	t.Parallel()
	urls := map[string]bool{}
	for range 3 {
		urls[redistest.Start(t)] = true
	}
	if len(urls) != 3 {
		t.Errorf("three servers have the URLs %v", urls)
	}
}

package main

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/cmd/agentd/internal/cli"
)

// Who starts something twice, or has another program on its port, is told what to do, in the first line and by every command that listens.
func TestListen_SaysWhatToDoAboutAnAddressThatIsTaken(t *testing.T) {
	script := filepath.Join(example, "script.yaml")
	s := startDev(t, filepath.Join(example, "agentd.yaml"), script, "--console", "off")
	var lc net.ListenConfig
	l, err := lc.Listen(context.WithoutCancel(t.Context()), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	address := l.Addr().String()
	want := "agentd: " + address + " is in use; stop what listens there, or choose another address\n" +
		"  listen tcp " + address + ": bind: address already in use\n"
	for _, args := range [][]string{
		{"mock-llm", "--script", script, "--listen", address},
		{"serve", "--http", address},
		{"mcp", "--http", address},
		{"console", "--http", address},
	} {
		t.Run(args[0], func(t *testing.T) {
			here := system{t: t, config: s.config, data: s.data}
			if _, problem := here.expect(cli.ExitUsage, args...); problem != want {
				t.Errorf("-want +got:\n%s", cmp.Diff(want, problem))
			}
		})
	}
	t.Run("dev", func(t *testing.T) {
		other := system{t: t, config: s.config, data: t.TempDir()}
		if _, problem := other.expect(cli.ExitUsage, "dev", "--console", address); problem != want {
			t.Errorf("-want +got:\n%s", cmp.Diff(want, problem))
		}
	})
}

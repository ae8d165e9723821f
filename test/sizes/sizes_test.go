// Package sizes holds what programs with agentd's packages carry along: the packages behind sdk/service and sdk/client, and the
// bytes of release builds.
package sizes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// foreign are packages that whoever only serves a contract or starts runs must not get: the server, what makes streams, stores, models and
// the exporters of telemetry, by the beginnings of their paths below the module's and elsewhere; and templates, which may call any method, so
// that the linker keeps them all: a third of a service.
var foreign = []string{
	"internal/broker/embedded", "internal/broker/provision", "internal/core", "internal/llm", "internal/mcp", "internal/runner", "internal/state",
	"internal/telemetry", "internal/worker",
	"cel.dev/", "github.com/anthropics/", "github.com/mark3labs/", "github.com/modelcontextprotocol/", "github.com/nats-io/nats-server/",
	"github.com/openai/", "github.com/prometheus/", "github.com/redis/", "github.com/tiktoken-go/", "go.opentelemetry.io/", "google.golang.org/",
	"html/template", "text/template",
}

func TestServicesAndClients_CarryNoServer(t *testing.T) {
	t.Parallel()
	module := tool(t, nil, "list", "-m")
	for _, pkg := range []string{"./sdk/service", "./sdk/client"} {
		for dep := range strings.FieldsSeq(tool(t, nil, "list", "-deps", pkg)) {
			for _, beginning := range foreign {
				if strings.HasPrefix(strings.TrimPrefix(dep, module+"/"), beginning) {
					t.Errorf("%s depends on %s", pkg, dep)
				}
			}
		}
	}
}

// The limits are of release builds, in bytes.
func TestReleaseBuilds_AreWithinTheirLimits(t *testing.T) {
	t.Parallel()
	for _, program := range []struct {
		pkg   string
		limit int64
	}{
		{"./test/sizes/service", 10_500_000},
		{"./test/sizes/client", 10_500_000},
		// Of 69 MB, 22 are Go and small things, 10 agentd's own packages, 9 the Redis client, 8 the NATS server, 7 telemetry with gRPC, 5
		// SQLite, in which a console keeps the index of runs, 5 CEL, 2 MCP, 1 YAML.
		{"./cmd/agentd", 73_000_000},
	} {
		binary := filepath.Join(t.TempDir(), "program")
		tool(t, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64"}, "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", binary, program.pkg)
		info, err := os.Stat(binary)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, the limit is %d", program.pkg, info.Size(), program.limit)
		if info.Size() > program.limit {
			t.Errorf("%s has %d bytes; it must not have more than %d", program.pkg, info.Size(), program.limit)
		}
	}
}

// tool runs the Go tool at the module's root.
func tool(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", args...)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// imageVariable names the environment variable with the image that Docker runs. scripts/tests.sh sets it.
const imageVariable = "AGENTD_TEST_REDIS_IMAGE"

// engine makes a command that runs redis-server with arguments and logs to its output, and a function that sends a signal
// to the server. The end of the context kills the server. It may write to dir.
type engine func(ctx context.Context, dir string, args []string) (*exec.Cmd, func(syscall.Signal) error)

// find looks for a way to run redis-server.
var find = sync.OnceValues(func() (engine, error) {
	if path, err := exec.LookPath("redis-server"); err == nil {
		return process(path), nil
	}
	if image := os.Getenv(imageVariable); image != "" {
		return container(image), nil
	}
	return nil, errors.New("redis-server is missing: apt-get install redis-server, or run make test, which can use Docker")
})

// process runs the program at a path.
func process(path string) engine {
	return func(ctx context.Context, _ string, args []string) (*exec.Cmd, func(syscall.Signal) error) {
		cmd := exec.CommandContext(ctx, path, args...)
		return cmd, func(sig syscall.Signal) error { return cmd.Process.Signal(sig) }
	}
}

// containers is how many this process has started.
var containers atomic.Int64

// container runs the server in Docker, on the network of the host and as the user of the test, with the folder at the same
// path: addresses, files and signals mean what they mean to a process.
func container(image string) engine {
	return func(ctx context.Context, dir string, args []string) (*exec.Cmd, func(syscall.Signal) error) {
		name := fmt.Sprintf("agentd-redis-%d-%d", os.Getpid(), containers.Add(1))
		cmd := exec.CommandContext(ctx, "docker", append([]string{ //nolint:gosec // it runs what the tests run
			"run", "--rm", "--name", name, "--network", "host", "--user", fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()),
			"--volume", dir + ":" + dir, "--entrypoint", "redis-server", image,
		}, args...)...)
		signal := func(sig syscall.Signal) error {
			out, err := exec.CommandContext(context.WithoutCancel(ctx), "docker", "kill", "--signal", fmt.Sprint(int(sig)), name).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
			}
			return nil
		}
		cmd.Cancel = func() error {
			err := signal(syscall.SIGKILL) // the command ends with its container
			if err != nil {
				err = errors.Join(err, cmd.Process.Kill()) // the container has not begun
			}
			return err
		}
		return cmd, signal
	}
}

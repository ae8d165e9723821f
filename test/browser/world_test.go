package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentd/test/capture"
	"agentd/test/poll"
	"agentd/test/ports"
)

// patience is how long a test waits for anything.
const patience = time.Minute

// bin is the folder of the programs, which the tests' end removes.
var bin string

// build builds agentd, the example's services and a NATS server, once.
var build = sync.OnceValue(func() error {
	for from, names := range map[string][]string{
		"../..": {"./cmd/agentd", "github.com/nats-io/nats-server/v2"}, "../../examples/traveldesk": {"."},
	} {
		cmd := exec.Command("go", append([]string{"build", "-o", bin + string(filepath.Separator)}, names...)...)
		cmd.Dir = from
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s in %s: %w\n%s", names, from, err, out)
		}
	}
	return nil
})

// process is a program that runs beside the test.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	out  *capture.Output
}

// world are the processes of a test.
type world struct {
	t *testing.T
	// data is the folder of the NATS server, and env what programs are told of where it and the model are.
	data string
	env  []string
	// config is the configuration file.
	config string
	// port is that of a server of its own, and index the folder of its console's index.
	port  int
	index string
}

// newWorld starts a model of the travel desk's script, for a test that needs a browser.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, "testdata/script.yaml")
}

// newWorldOf starts a scripted model, for a test that needs a browser.
func newWorldOf(t *testing.T, script string) *world {
	t.Helper()
	needsBrowser(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, index: t.TempDir(), data: filepath.Join(t.TempDir(), "nats"), config: "testdata/agentd.yaml"}
	model := w.start("agentd", "mock-llm", "--script", script, "--listen", "127.0.0.1:0")
	w.env = append(w.env, "OPENAI_API_KEY=none", "OPENAI_BASE_URL="+model.says(`listens on (\S+)`)+"/v1")
	return w
}

// dev starts agentd dev and the services of the travel desk, and returns the address of its console.
func (w *world) dev() string {
	w.t.Helper()
	dev := w.start("agentd", "dev", "--config", w.config, "--data", w.data, "--console", "127.0.0.1:0")
	dev.says(`(?m)^ready`)
	w.connect(dev.says(`nats +(\S+)`))
	w.start("traveldesk")
	return dev.address()
}

// served starts the parts of agentd dev one by one: a server on a port of its own, a worker, the services, and a console for anna that
// keeps an index in a folder.
func (w *world) served() (server *process, console *process) {
	w.t.Helper()
	w.port = ports.Free(w.t)
	server = w.server()
	w.connect(server.says(`nats +(\S+)`))
	w.agentd("provision", "--index") // a worker looks for an index when it starts, and then twice a minute
	w.start("agentd", "serve", "--config", w.config).says(`msg=serving|"msg":"serving"`)
	w.start("traveldesk")
	return server, w.startConsole("--as", "anna", "--index", w.index)
}

// server starts a NATS server on what the one before has stored, where that was.
func (w *world) server() *process {
	w.t.Helper()
	p := w.start("agentd", "dev", "--server-only", "--config", w.config, "--data", w.data, "--port", strconv.Itoa(w.port))
	p.says(`(?m)^ready`)
	return p
}

// startConsole starts a console beside others.
func (w *world) startConsole(args ...string) *process {
	w.t.Helper()
	p := w.start("agentd", append([]string{"console", "--config", w.config, "--http", "127.0.0.1:0"}, args...)...)
	p.says(`(?m)^ready`)
	return p
}

// address is that of the console's pages.
func (p *process) address() string { return p.says(`console +(http://\S+)/`) }

// connect tells the programs that are started from now on where the server is.
func (w *world) connect(url string) { w.env = append(w.env, "NATS_URL="+url) }

// url is where the server is.
func (w *world) url() string {
	url, _ := strings.CutPrefix(w.env[len(w.env)-1], "NATS_URL=")
	return url
}

// start starts a program, which the test's end ends.
func (w *world) start(name string, args ...string) *process {
	w.t.Helper()
	p := &process{t: w.t, name: name + " " + strings.Join(args[:min(len(args), 1)], ""), out: &capture.Output{}}
	p.cmd = exec.Command(filepath.Join(bin, name), args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), w.env...), p.out, p.out
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		p.stop(syscall.SIGTERM)
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", p.name, p.out)
		}
	})
	return p
}

// stop ends the program and waits for it.
func (p *process) stop(signal os.Signal) {
	p.t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("stop %s: %v", p.name, err)
	}
	err := p.cmd.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		p.t.Errorf("%s: %v", p.name, err)
	}
}

// says waits until the program has printed the pattern, and returns what its group is.
func (p *process) says(pattern string) (found string) {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	await(p.t, p.name+" prints "+pattern, func() bool {
		m := expression.FindStringSubmatch(p.out.String())
		if m != nil {
			found = m[len(m)-1]
		}
		return m != nil
	})
	return found
}

// agentd runs a command to its end, and returns what it prints.
func (w *world) agentd(args ...string) string {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), patience)
	defer stop()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "agentd"), append(args, "--config", w.config)...)
	cmd.Env = append(os.Environ(), w.env...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("agentd %q: %v\n%s%s", args, err, out, problems.String())
	}
	return string(out)
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	poll.Until(t, patience, what, holds)
}

package interop

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v4"

	"agentd/test/capture"
)

// What agentd init makes runs at once, in every language: the agent calls the service, whose answer is the run's result. In the template
// approvals, once a person has allowed it; in the template planner, after those of an MCP server. The tests of those in Go pass, and the
// services of all keep to the wire, as the README tries it.
func TestInit_ProjectsRun(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "agentd")
	finish(t, "../..", "go", "build", "-o", binary, "./cmd/agentd")
	for language, service := range map[string]func(t *testing.T) command{
		"go": func(*testing.T) command { return command{args: []string{"bin/clerk"}} },
		"node": func(t *testing.T) command {
			nodeFolder(t) // says what is missing
			return command{args: []string{"node", "service.mjs"}}
		},
		"python": func(t *testing.T) command {
			lookPath(t, "python3")
			return command{args: []string{"python3", "service.py"}, env: []string{"PYTHONPATH=" + absolute(t, "../../sdk/python"), "PYTHONDONTWRITEBYTECODE=1"}}
		},
	} {
		for template, said := range map[string][]string{
			"minimal":   {"How is the weather in Bern?", `{"text":"sunny in Bern"}`, "It is sunny in Bern."},
			"planner":   {"How do the orders A-7 and A-8 of Ada stand? Tell her, too.", "mail to ada@example.org, c", "A-7 has been sent, A-8 is being packed."},
			"approvals": {"Order A-7 came broken, I want my 80 euros back.", "refund of A-7, c1-0-", "You get 80 euros back for order A-7."},
		} {
			t.Run(template+" "+language, func(t *testing.T) {
				t.Parallel()
				serving, dir := service(t), t.TempDir()
				finish(t, dir, binary, "init", "clerk", "--template", template, "--language", language, "--source", absolute(t, "../.."))
				project := filepath.Join(dir, "clerk")
				readme, err := os.ReadFile(filepath.Join(project, "README.md"))
				if err != nil || !strings.Contains(string(readme), "--message '"+said[0]+"'") {
					t.Errorf("%v\n%s", err, readme)
				}
				finish(t, project, binary, "check")
				once := onceIn(string(readme))
				checkCompose(t, project, once)
				if once != "" {
					finish(t, project, "sh", "-c", once)
				}
				finishWith(t, project, serving.env, conformanceIn(t, string(readme), binary, serving.args)...)
				if language == "go" {
					finish(t, project, "go", "test", "-vet=off", ".")
				}
				_, model, _ := strings.Cut(until(t, project, nil, "listens on ", binary, "mock-llm", "--script", "script.yaml", "--listen", "127.0.0.1:0"), "listens on ")
				until(t, project, []string{"OPENAI_BASE_URL=" + model + "/v1"}, "ready", binary, "dev")
				address, err := os.ReadFile(filepath.Join(project, ".agentd", "address"))
				if err != nil {
					t.Fatal(err)
				}
				env := []string{"NATS_URL=" + strings.TrimSpace(string(address))}
				begin(t, project, append(env, serving.env...), io.Discard, serving.args)
				finish(t, project, binary, "run", "clerk", "--message", said[0], "--subject", "first", "--detach")
				if template == "approvals" {
					approve(t, project, binary)
				}
				out := finish(t, project, binary, "runs", "follow", "first")
				if !strings.Contains(out, said[1]) || !strings.Contains(out, said[2]) {
					t.Errorf("the run prints\n%s", out)
				}
			})
		}
	}
}

// onceIn is what a README says is to be done once, before anything runs; "" is nothing.
func onceIn(readme string) string {
	_, once, _ := strings.Cut(readme, " Once, here:\n\n    ")
	command, _, _ := strings.Cut(once, "\n")
	return command
}

// approve allows the one request that comes.
func approve(t *testing.T, project, binary string) {
	t.Helper()
	line := until(t, project, nil, "refund", binary, "approvals", "watch")
	finish(t, project, binary, "approvals", "approve", strings.Fields(line)[2])
}

// environment is this process's, without settings of servers and models.
func environment(more []string) []string {
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !strings.HasPrefix(name, "AGENTD_") && !strings.HasPrefix(name, "NATS_") && !strings.HasPrefix(name, "OPENAI_") && name != "REDIS_URL" {
			env = append(env, e)
		}
	}
	return append(append(env, "OPENAI_API_KEY=none"), more...)
}

// conformanceIn is the command of a README that tries the service, with all of its cases, on a machine that has much else to do.
func conformanceIn(t *testing.T, readme, binary string, service []string) []string {
	t.Helper()
	_, command, found := strings.Cut(readme, "    agentd conformance --service ")
	contract, command, _ := strings.Cut(command, " --data '")
	data, command, _ := strings.Cut(command, "' -- ")
	if program, _, _ := strings.Cut(command, "\n"); !found || filepath.Base(program) != filepath.Base(strings.Join(service, " ")) {
		t.Fatalf("the README does not try %q:\n%s", service, readme)
	}
	return append([]string{binary, "conformance", "--service", contract, "--data", data, "--patience", "1m", "--"}, service...)
}

// checkCompose reads compose.yaml: each service has an image, what is mounted into it exists, and what is to be done once is done.
func checkCompose(t *testing.T, project, once string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(project, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Image   string   `yaml:"image"`
			Volumes []string `yaml:"volumes"`
			Command []string `yaml:"command"`
		} `yaml:"services"`
		Volumes map[string]any `yaml:"volumes"`
	}
	if err := yaml.Unmarshal(data, &compose); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	for _, name := range []string{"nats", "provision", "model", "worker", "service", "client"} {
		if compose.Services[name].Image == "" {
			t.Errorf("compose.yaml has no image for %s:\n%s", name, data)
		}
	}
	if done := strings.Join(compose.Services["build"].Command, " "); done != once {
		t.Errorf("compose.yaml does once %q, and README.md %q", done, once)
	}
	for _, mounted := range compose.Services["worker"].Volumes {
		from, _, _ := strings.Cut(strings.NewReplacer("${AGENTD:-", "", "}", "").Replace(mounted), ":")
		if _, named := compose.Volumes[from]; named || from == "." {
			continue
		}
		if _, err := os.Stat(from); err != nil {
			t.Errorf("compose.yaml mounts %s: %v", mounted, err)
		}
	}
}

// finish runs a program to its end and returns what it prints.
func finish(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return finishWith(t, dir, nil, args...)
}

// finishWith is finish with more in the environment.
func finishWith(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, environment(env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// until starts a program and returns the first line that it prints with text.
func until(t *testing.T, dir string, env []string, text string, args ...string) string {
	t.Helper()
	r, w := io.Pipe()
	begin(t, dir, env, w, args)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if line := lines.Text(); strings.Contains(line, text) {
			go func() { _, _ = io.Copy(io.Discard, r) }() // it ends with begin's program
			return line
		}
	}
	t.Fatalf("%s ended without saying %q", strings.Join(args, " "), text)
	return ""
}

// begin starts a program that is killed at the end of the test, with whatever it started.
func begin(t *testing.T, dir string, env []string, to io.Writer, args []string) {
	t.Helper()
	var log capture.Output
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, environment(env)
	both := io.MultiWriter(&log, to)
	cmd.Stdout, cmd.Stderr = both, both
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		if pipe, ok := to.(io.Closer); ok {
			_ = pipe.Close() // of a pipe, which never fails
		}
		close(ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group that this process leads
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(args, " "), log.String())
		}
	})
}

package deploy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"
	"github.com/testcontainers/testcontainers-go/network"

	"agentd/test/poll"
)

// patience is how long anything may take.
const patience = time.Minute

// world is the system of docker-compose.yml.
type world struct {
	t       *testing.T
	project *types.Project
	network string
	running map[string]testcontainers.Container
}

// compose reads docker-compose.yml with images, as `docker compose` does.
func compose(t *testing.T, images map[string]string) *types.Project {
	t.Helper()
	var env []string
	for name, image := range images {
		env = append(env, name+"="+image)
	}
	options, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"}, cli.WithEnv(env), cli.WithProfiles([]string{"*"}),
		cli.WithWorkingDirectory("../.."), cli.WithDiscardEnvFile)
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func start(t *testing.T, images map[string]string, services ...string) *world {
	t.Helper()
	net, err := network.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := net.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, project: compose(t, images), network: net.Name, running: map[string]testcontainers.Container{}}
	w.begin(services...)
	return w
}

// begin starts the containers of services, which end with the test.
func (w *world) begin(services ...string) {
	w.t.Helper()
	for _, name := range services {
		w.running[name] = w.run(name, nil)
	}
}

// run starts the container of a service, with command in place of its own unless that is nil.
func (w *world) run(name string, command []string) testcontainers.Container {
	w.t.Helper()
	s, err := w.project.GetService(name)
	if err != nil {
		w.t.Fatal(err)
	}
	if command == nil {
		command = s.Command
	}
	env := map[string]string{"OTEL_BSP_SCHEDULE_DELAY": "100"} // the test waits for spans
	for key, value := range s.Environment {
		if value != nil {
			env[key] = *value
		}
	}
	c, err := testcontainers.GenericContainer(w.t.Context(), testcontainers.GenericContainerRequest{
		Started: true,
		ContainerRequest: testcontainers.ContainerRequest{
			Image: s.Image, Cmd: command, Env: env, Networks: []string{w.network},
			NetworkAliases: map[string][]string{w.network: {name}},
			ConfigModifier: func(c *container.Config) { c.Hostname = name },
			HostConfigModifier: func(h *container.HostConfig) {
				h.ReadonlyRootfs, h.CapDrop, h.SecurityOpt, h.Tmpfs = s.ReadOnly, s.CapDrop, s.SecurityOpt, map[string]string{}
				for _, v := range s.Volumes {
					switch v.Type {
					case types.VolumeTypeBind:
						h.Binds = append(h.Binds, v.Source+":"+v.Target+":ro")
					default:
						h.Tmpfs[v.Target] = ""
					}
				}
			},
		},
	})
	if err != nil {
		w.t.Fatalf("start %s: %v", name, err)
	}
	w.t.Cleanup(func() { w.remove(name, c) })
	return c
}

func (w *world) remove(name string, c testcontainers.Container) {
	ctx := context.WithoutCancel(w.t.Context())
	if w.t.Failed() {
		w.t.Logf("%s:\n%s", name, w.logs(c))
	}
	if err := c.Terminate(ctx, testcontainers.StopTimeout(0)); err != nil {
		w.t.Error(err)
	}
}

// logs are what the container has written.
func (w *world) logs(c testcontainers.Container) string {
	r, err := c.Logs(context.WithoutCancel(w.t.Context()))
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// eventually waits until holds does.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	poll.Until(w.t, patience, what, holds)
}

// healthy waits until the health check that docker-compose.yml has for a service succeeds.
func (w *world) healthy(name string) {
	w.t.Helper()
	check := w.project.Services[name].HealthCheck.Test[1:]
	w.eventually(name+" is healthy", func() bool {
		code, out, err := w.running[name].Exec(w.t.Context(), check, exec.Multiplexed())
		if err != nil {
			return false
		}
		text, _ := io.ReadAll(out) // only for the log
		if code != 0 {
			w.t.Logf("%s: %s", name, bytes.TrimSpace(text))
		}
		return code == 0
	})
}

// command runs a command of agentd to its end, as a service that has none of its own, and returns what it wrote.
func (w *world) command(service string, command ...string) string {
	w.t.Helper()
	code, out := w.ends(service, command)
	if code != 0 {
		w.t.Fatalf("agentd %v ends with %d:\n%s", command, code, out)
	}
	return out
}

// ends runs the container of a service to its end, and returns its exit code and what it wrote.
func (w *world) ends(name string, command []string) (code int, out string) {
	w.t.Helper()
	c := w.run(name, command)
	w.eventually("agentd "+strings.Join(command, " ")+" ends", func() bool {
		state, err := c.State(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		code = state.ExitCode
		return !state.Running
	})
	return code, w.logs(c)
}

// span is what the collector writes of a span.
type span struct {
	Service, Host, Name, Trace, ID, Parent string
	Links                                  []string
	Attributes                             map[string]string
}

func (s span) kind() string { return s.Attributes["openinference.span.kind"] }

// spans are those that the collector has.
func (w *world) spans() []span {
	w.t.Helper()
	var all []span
	lines := bufio.NewScanner(strings.NewReader(w.logs(w.running["collector"])))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		_, text, ok := strings.Cut(lines.Text(), "{")
		if !ok {
			continue
		}
		var s span
		if err := json.Unmarshal([]byte("{"+text), &s); err != nil {
			w.t.Fatalf("the collector wrote %q: %v", lines.Text(), err)
		}
		all = append(all, s)
	}
	return all
}

func find(spans []span, match func(span) bool) (span, bool) {
	i := slices.IndexFunc(spans, match)
	if i < 0 {
		return span{}, false
	}
	return spans[i], true
}

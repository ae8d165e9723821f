package interop

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentd/test/missing"
)

var inContainers = flag.Bool("compose", false, "run the projects of agentd init in containers too, with images that are pulled where they are not here (make deploy)")

// The compose file of each project that agentd init makes runs it, by the commands at its top.
func TestInit_ProjectsRunInContainers(t *testing.T) {
	if !*inContainers {
		t.Skip("pulls images and builds in containers for minutes: make deploy")
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", "docker version && docker compose version").CombinedOutput(); err != nil {
		missing.Optional(t, "Docker with its plugin compose is not here: %s", out)
	}
	agentd := filepath.Join(t.TempDir(), "agentd")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", agentd, "./cmd/agentd")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0") // it runs in images of any C library
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for template, result := range map[string]string{
		"minimal": "It is sunny in Bern.", "planner": "A-7 has been sent, A-8 is being packed.", "approvals": "You get 80 euros back for order A-7.",
	} {
		for _, language := range []string{"go", "node", "python"} {
			t.Run(template+" "+language, func(t *testing.T) {
				dir := t.TempDir()
				finish(t, dir, agentd, "init", "clerk", "--template", template, "--language", language, "--source", absolute(t, "../.."))
				p := composed{t, filepath.Join(dir, "clerk"), "agentd-test-" + template + "-" + language}
				if out := p.run(template == "approvals"); !strings.Contains(out, result) {
					t.Errorf("the commands print:\n%s", out)
				}
			})
		}
	}
}

// composed is a project in containers.
type composed struct {
	t         *testing.T
	dir, name string
}

// run does what compose.yaml says at its top, and returns what is printed last. The run may ask for permission.
func (c composed) run(asks bool) string {
	c.t.Helper()
	file, err := os.ReadFile(filepath.Join(c.dir, "compose.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, image := range regexp.MustCompile(`image: (\S+)`).FindAllStringSubmatch(string(file), -1) {
		if out, err := c.command("docker image inspect " + image[1] + " || docker pull --quiet " + image[1]); err != nil {
			missing.Optional(c.t, "the image %s cannot be had: %s", image[1], out)
		}
	}
	commands := regexp.MustCompile(`(?m)^#   (docker compose .*)$`).FindAllStringSubmatch(string(file), -1)
	if len(commands) != 2 {
		c.t.Fatalf("want two commands:\n%s", file)
	}
	c.t.Cleanup(c.down)
	up, message := commands[0][1], commands[1][1]
	if !asks {
		return c.must(up + "\n" + message)
	}
	c.must(up + "\n" + message + " --subject first --detach")
	return c.must(`until id=$(docker compose run --rm client approvals list -o json | grep -o '"id": *"[^"]*"' | head -n 1 | cut -d '"' -f 4) && [ -n "$id" ]; do :; done
docker compose run --rm client approvals approve "$id"
docker compose run --rm client runs follow first`)
}

// down removes everything. What root has made in the project is given to whoever runs the test, who removes it.
func (c composed) down() {
	if c.t.Failed() {
		c.t.Log(c.must("docker compose ps --all; docker compose logs --no-color"))
	}
	c.must(fmt.Sprintf("docker compose run --rm --no-deps --entrypoint chown client -R %d:%d /project", os.Getuid(), os.Getgid()))
	c.must("docker compose --profile '*' down --volumes --timeout 10")
}

func (c composed) must(commands string) string {
	c.t.Helper()
	out, err := c.command(commands)
	if err != nil {
		c.t.Errorf("%s: %v\n%s", commands, err, out)
	}
	return out
}

// command runs commands in the project, whose server gets a port that is free.
func (c composed) command(commands string) (string, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.t.Context()), 10*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "bash", "-euc", commands)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "COMPOSE_PROJECT_NAME="+c.name, "NATS_PORT=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

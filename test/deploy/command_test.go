package deploy_test

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The image's health check asks a worker's port. Where it would ask a service that does not listen there, `docker compose up --wait` never
// ends well.
func TestCompose_WhoListensIsAskedWhetherItIsReady(t *testing.T) {
	project := compose(t, map[string]string{"AGENTD_IMAGE": "agentd:test"})
	for name, s := range project.Services {
		if s.Image != "agentd:test" {
			continue
		}
		listens := port(s.Command, "--http", "--listen")
		asked := "8080" // by the image's own check
		switch check := s.HealthCheck; {
		case check != nil && check.Disable:
			asked = ""
		case check != nil && port(check.Test, "--http") != "":
			asked = port(check.Test, "--http")
		}
		if asked != listens {
			t.Errorf("%s listens on port %q, and is asked on port %q", name, listens, asked)
		}
	}
}

// port is that of the address that follows one of the flags, "" without any.
func port(command []string, flags ...string) string {
	for _, flag := range flags {
		if i := slices.Index(command, flag); i >= 0 && i+1 < len(command) {
			return command[i+1][strings.LastIndex(command[i+1], ":")+1:]
		}
	}
	return ""
}

// Every program that connects to the NATS server is a user of it, with the password that the server has for it, and only the operator
// provisions.
func TestCompose_EveryProgramHasItsUser(t *testing.T) {
	project := compose(t, nil)
	passwords := project.Services["nats"].Environment
	want := map[string]string{
		"worker-1": "worker", "worker-2": "worker", "provision": "operator", "operator": "operator", "travel": "travel", "client": "client",
	}
	for name, s := range project.Services {
		address := s.Environment["NATS_URL"]
		if address == nil {
			if want[name] != "" {
				t.Errorf("%s has no NATS_URL", name)
			}
			continue
		}
		u, err := url.Parse(*address)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		if u.User.Username() != want[name] {
			t.Errorf("%s connects as %q, want %q", name, u.User.Username(), want[name])
		}
		variable := "AGENTD_" + strings.ToUpper(u.User.Username()) + "_PASSWORD"
		if known := passwords[variable]; known == nil || *known != password {
			t.Errorf("%s connects with another password than the server's %s", name, variable)
		}
		if provisions := slices.Contains(s.Command, "provision") || slices.Contains(s.Command, "--provision"); provisions != (name == "provision") {
			t.Errorf("%s provisions: %t", name, provisions)
		}
	}
	config, err := os.ReadFile("../../deploy/compose/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(`password: \$(\w+)`).FindAllStringSubmatch(string(config), -1)
	if len(wanted) != 4 { // of worker, operator, travel and client
		t.Errorf("the server's file asks for %d passwords, want 4", len(wanted))
	}
	for _, m := range wanted {
		if passwords[m[1]] == nil {
			t.Errorf("the server does not start: docker-compose.yml does not give it %s", m[1])
		}
	}
}

// What docs/operations.md has for one machine, by the command itself. The file's own ports may be in use here, so none are
// published.
func TestCompose_RunsTheCommandsOfTheDocs(t *testing.T) {
	provider := localEngine(t)
	if out, err := exec.CommandContext(t.Context(), "docker", "compose", "version").CombinedOutput(); err != nil {
		t.Skipf("docker compose is missing here: %s", out)
	}
	typed := strings.ReplaceAll(example(t, "docker compose up"), "--build ", "") // that would pull
	images := standIns(t, provider)
	images["JAEGER_IMAGE"] = images["COLLECTOR_IMAGE"]
	quiet := filepath.Join(t.TempDir(), "no-ports.yaml")
	if err := os.WriteFile(quiet, []byte("services:\n  nats: {ports: !reset []}\n  traces: {ports: !reset []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "COMPOSE_PROJECT_NAME=agentd-test", "COMPOSE_FILE=docker-compose.yml:"+quiet)
	for name, image := range images {
		env = append(env, name+"="+image)
	}
	bash := func(commands string) string {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-euc", commands)
		cmd.Dir, cmd.Env = "../..", env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", commands, err, out)
		}
		return string(out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(bash("docker compose ps --all; docker compose logs --no-color"))
		}
		bash("docker compose --profile '*' down --volumes --timeout 10")
	})
	out := bash(typed)
	if !strings.Contains(out, "TRIP-TP-533-casa-do-rio") {
		t.Errorf("the commands\n%s\nprint:\n%s", typed, out)
	}
	out = bash("docker compose run --rm client run travel.desk --subject next --detach --message 'Two nights in Lisbon, please.'\n" +
		"docker compose run --rm operator runs follow next --answer 'Yes, book both'")
	if !strings.Contains(out, "TRIP-TP-533-casa-do-rio") {
		t.Errorf("with a worker killed, the run prints:\n%s", out)
	}
	if out := bash("docker compose run --rm operator doctor --monitor http://nats:8222 -o json"); strings.Contains(out, `"error"`) {
		t.Errorf("doctor finds:\n%s", out)
	}
}

// example is the one of docs/operations.md that contains a command, as it is typed.
func example(t *testing.T, command string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], command) {
			return m[1]
		}
	}
	t.Fatalf("docs/operations.md has no example with %q", command)
	return ""
}

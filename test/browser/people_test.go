package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"agentd/test/identity"
	"agentd/test/ports"
)

// staffed is a world whose server knows everybody by name, and whose console people log in to.
type staffed struct {
	*world
	idp *identity.Provider
	// console is its address, and request the page of what the run lisbon asks.
	console, request string
}

// staff starts a server of nats-config, on which anna is an approver, and what asks it who logged in.
func staff(t *testing.T) staffed {
	t.Helper()
	s := staffed{world: newWorld(t), idp: identity.Start(t)}
	dir := t.TempDir()
	s.port = ports.Free(t)
	listen := "127.0.0.1:" + strconv.Itoa(ports.Free(t))
	// To a browser, localhost is another site than the provider's 127.0.0.1: cookies and redirections are those between strangers.
	s.console = "http://localhost" + strings.TrimPrefix(listen, "127.0.0.1")
	s.config = filepath.Join(dir, "agentd.yaml")
	s.write(s.config, s.settings()+strings.ReplaceAll(s.read("testdata/agentd.yaml"), "../../../", s.absolute("../..")+"/"))
	for _, user := range []string{"WORKER", "OPERATOR", "CALLOUT", "SHOP", "ANNA", "DESK"} {
		s.env = append(s.env, "AGENTD_"+user+"_PASSWORD=secret")
	}
	key := filepath.Join(dir, "callout.nk")
	conf := filepath.Join(dir, "nats.conf")
	s.write(conf, s.agentd("nats-config", "--client", "shop", "--approver", "anna",
		"--service", "desk=weather.forecast,flights.search,hotels.search,bookings.book", "--listen", fmt.Sprint("127.0.0.1:", s.port),
		"--store-dir", s.data, "--callout", strings.TrimSpace(s.agentd("nats-callout", "--new-key", key))))
	s.start("nats-server", "-c", conf).says("Server is ready")
	s.as("operator").agentd("provision")
	s.as("worker").start("agentd", "serve", "--config", s.config).says(`msg=serving|"msg":"serving"`)
	s.as("desk").start("traveldesk")
	s.as("callout").start("agentd", "nats-callout", "--config", s.config, "--key", key).says("ready")
	s.as("operator").start("agentd", "console", "--config", s.config, "--http", listen).says(`(?m)^ready`)
	s.as("shop").run("lisbon", "Two nights in Lisbon, please", "--detach")
	s.as("anna")
	s.request = s.asked("lisbon")
	return s
}

// settings are those of logins, in a file of their own words.
func (s staffed) settings() string {
	return fmt.Sprintf("identity: required\nconsole: {oidc: {issuer: %q, client_id: %s, url: %q, roles: ["+
		"{group: staff, role: viewer}, {group: ops, role: operator}, {group: desk, role: approver}]}}\n", s.idp.Issuer(), identity.Client, s.console)
}

// as connects what is started from now on as a user of the server.
func (s staffed) as(user string) *world {
	s.connect(fmt.Sprintf("nats://%s:secret@127.0.0.1:%d", user, s.port))
	return s.world
}

func (w *world) write(file, text string) {
	w.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(file string) string {
	w.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *world) absolute(path string) string {
	w.t.Helper()
	absolute, err := filepath.Abs(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return absolute
}

// logsIn opens a tab in which somebody logs in on the way to a page, and comes to it.
func (s staffed) logsIn(path, name string, groups ...string) *tab {
	s.t.Helper()
	s.idp.LogsIn(name, groups...)
	b := newTab(s.t, s.console)
	b.open(path)
	b.shows("Log in")
	if left := b.unreached(); left != "" {
		s.t.Errorf("at the login, the tab key does not come to\n%s", left)
	}
	b.accessible()
	b.click("#log-in")
	if got := b.location(); got != path {
		s.t.Errorf("the login of %s leads to %s", name, got)
	}
	return b
}

// People log in, each sees what they may, and who may decide does so in their own name.
func TestPeople_LogInAndDecideAsThemselves(t *testing.T) {
	t.Parallel()
	s := staff(t)
	for name, group := range map[string]string{"vic": "staff", "oda": "ops", "eve": "desk"} {
		b := s.logsIn(s.request, name, group)
		if eval[bool](b, `document.querySelector("#approve") !== null`) {
			t.Errorf("%s of %s is offered to decide", name, group)
		}
		b.accessible()
		for _, path := range []string{"/", "/runs", "/runs/lisbon", "/inbox", "/agents", "/health"} {
			b.open(path)
			b.accessible()
		}
	}
	anna := s.logsIn(s.request, "anna", "desk")
	anna.shows("Decide, as anna")
	anna.accessible()
	anna.click("#approve")
	anna.comesTo("/runs/lisbon", "completed")
	if log := s.as("operator").agentd("approvals", "log", "lisbon"); !strings.Contains(log, "anna") {
		t.Errorf("the log of decisions does not name anna:\n%s", log)
	}
}

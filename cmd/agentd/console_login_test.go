package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/accounts"
	"agentd/sdk/wire"
	"agentd/test/identity"
	"agentd/test/ports"
)

// staffed is a server of nats-config with a callout, and a console where people log in.
type staffed struct {
	*guarded
	idp *identity.Provider
	// base is the address of the console.
	base string
}

// startStaffed starts a server that knows the approver jane, a worker, the callout and the console.
func startStaffed(t *testing.T) *staffed {
	t.Helper()
	return startStaffedUnder(t, "")
}

// startStaffedUnder is startStaffed with the console under a path.
func startStaffedUnder(t *testing.T, path string) *staffed {
	t.Helper()
	address := "127.0.0.1:" + strconv.Itoa(ports.Free(t))
	s := &staffed{idp: identity.Start(t), base: "http://" + address + path}
	settings := fmt.Sprintf("console: {oidc: {issuer: %q, client_id: %s, url: %q, roles: ["+
		"{group: staff, role: viewer}, {group: ops, role: operator}, {group: desk, role: approver}, {group: money, role: approver, domains: [payments]}]}}\n",
		s.idp.Issuer(), identity.Client, s.base)
	key := filepath.Join(t.TempDir(), "callout.nk")
	made := &system{t: t, config: "unused.yaml", data: t.TempDir()}
	public, _ := made.expect(cli.ExitOK, "nats-callout", "--new-key", key)
	t.Setenv(accounts.PasswordVariable("callout"), "secret-of-callout")
	s.guarded = newGuarded(t, settings, func(agents string) string { return agents }, "--callout", strings.TrimSpace(public))
	t.Cleanup(s.idp.Close)
	s.work()
	var out, errors output
	s.background(&out, &errors, "nats-callout", "--key", key, "--nats", s.url("callout"))
	s.until(&out, "ready")
	var said, problems output
	s.background(&said, &problems, "console", "--http", address, "--base-path", path+"/", "--nats", s.url("operator"))
	s.until(&said, "\nready")
	return s
}

// login is a browser in which somebody has logged in.
func (s *staffed) login(name string, groups ...string) *identity.Browser {
	s.t.Helper()
	s.idp.LogsIn(name, groups...)
	b := identity.Browse(s.t, s.base)
	if status, page := b.LogIn(); status != http.StatusOK || !strings.Contains(page, "<h1>Overview</h1>") {
		s.t.Fatalf("%s comes to a page with %d:\n%s", name, status, page)
	}
	return b
}

// Whoever logs in at the identity provider comes back under the path of the console; one that they would come back beside is refused.
func TestConsole_LogsPeopleInUnderItsPath(t *testing.T) {
	s := startStaffedUnder(t, "/ops/agentd")
	vic := s.login("vic", "staff")
	if status, page := vic.Get("/inbox"); status != http.StatusOK || !strings.Contains(page, `href="/ops/agentd/inbox" aria-current="page"`) {
		t.Errorf("vic sees a page with %d:\n%s", status, page)
	}
	_, problem := s.expect(cli.ExitUsage, "console", "--http", "127.0.0.1:0", "--base-path", "/elsewhere", "--nats", s.url("operator"))
	contains(t, problem, "console.oidc.url", "/elsewhere/", "--base-path")
	_, problem = s.expect(cli.ExitUsage, "console", "--http", "127.0.0.1:0", "--base-path", "no path", "--nats", s.url("operator"))
	contains(t, problem, "a console cannot be under the path")
}

// What a browser keeps of a login has to fit into the header of each request. Who has more is told what to do, and can still see the pages that
// anybody can.
func TestConsole_RefusesAWordThatNoRequestCanCarry(t *testing.T) {
	s := startStaffedUnder(t, "")
	groups := []string{"staff"}
	for i := range 90 {
		groups = append(groups, fmt.Sprintf("%060d", i))
	}
	many := s.login("vic", groups...)
	kept := 0
	for _, c := range many.Cookies() {
		kept += len(c.Value)
	}
	if kept < 9_000 || kept > 12_000 {
		t.Errorf("the browser keeps %d bytes of a login", kept)
	}
	s.idp.LogsIn("vic", append(groups, groups[1:]...)...)
	more := identity.Browse(t, s.base)
	status, page := more.LogIn()
	if status != http.StatusRequestEntityTooLarge {
		t.Errorf("a word of %d groups is answered with %d:\n%s", 2*len(groups)-1, status, page)
	}
	contains(t, page, "is too large to be kept in the browser", "and 12000 may be", "have it send fewer groups")
	if status, page := more.Get("/login"); status != http.StatusOK {
		t.Errorf("the login is answered with %d after that:\n%s", status, page)
	}
}

// stored is how many answers, control messages and starts there are.
func (s *staffed) stored() (n int) {
	s.t.Helper()
	nc, _ := s.connect("operator")
	defer nc.Close()
	for _, stream := range []string{"AGENTD_IN", "AGENTD_START", "AGENTD_CTL"} {
		m, err := nc.Request("$JS.API.STREAM.INFO."+stream, nil, wait)
		var info struct {
			State struct {
				Last int `json:"last_seq"`
			} `json:"state"`
		}
		if err != nil || json.Unmarshal(m.Data, &info) != nil {
			s.t.Fatalf("%v %s", err, m.Data)
		}
		n += info.State.Last
	}
	return n
}

var argsHash = regexp.MustCompile(`name="args_sha256" value="([^"]+)"`)

// Who logged in decides as themselves, as the broker enforces: in the journal are their names, and not that of the console.
func TestConsole_DecidesAsWhoLoggedIn(t *testing.T) {
	s := startStaffed(t)
	s.serve(func() {})
	s.as("bob", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	request := "/inbox/" + url.PathEscape(s.request("one").ID)
	jane := s.login("jane", "desk")
	_, page := jane.Get(request)
	contains(t, page, "Decide, as jane", "deciding as <strong")
	if strings.Contains(page, "could not be recorded") {
		t.Errorf("that jane saw it is not recorded:\n%s", page)
	}
	before := s.stored()
	approve := url.Values{"decision": {"allow"}, "args_sha256": {argsHash.FindStringSubmatch(page)[1]}}

	// Who may look and not decide changes nothing, whatever they send.
	for group, name := range map[string]string{"staff": "vic", "desk": "eve", "ops": "oda", "money": "jane"} {
		b := s.login(name, group)
		status, page := b.Get(request)
		if status != http.StatusOK || strings.Contains(page, `id="approve"`) {
			t.Errorf("%s sees a page with %d:\n%s", name, status, page)
		}
		want := map[string]string{"desk": "the broker does not let you in as eve", "money": "in the domain human.interaction: that needs"}[group]
		if !strings.Contains(page, want) {
			t.Errorf("%s is not told why they cannot decide:\n%s", name, page)
		}
		if status, page := b.Post(request+"/decide", approve); status != http.StatusForbidden {
			t.Errorf("%s decides, and gets %d:\n%s", name, status, page)
		}
		if group == "ops" {
			continue
		}
		if status, page := b.Post("/runs/one/cancel", nil); status != http.StatusForbidden {
			t.Errorf("%s cancels, and gets %d:\n%s", name, status, page)
		}
	}
	if after := s.stored(); after != before {
		t.Errorf("who may not decide published %d messages", after-before)
	}

	status, page := jane.Post(request+"/decide", approve)
	if status != http.StatusOK {
		t.Fatalf("jane gets %d:\n%s", status, page)
	}
	contains(t, page, "Allowed", "Said as jane (logged in at ")
	contains(t, s.as("bob", "runs", "follow", "one", "--answer", "Current"), "Paid.")
	contains(t, s.as("operator", "approvals", "log", "one"), "jane")
	if said := s.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what the console needs:\n%s", strings.Join(said, "\n"))
	}
}

// The broker holds a login to its own name and domains, whatever the console would publish with it, and nobody else's words count.
func TestCallout_HoldsALoginToItsName(t *testing.T) {
	s := startStaffed(t)
	s.as("bob", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	call := s.request("one")
	ref, _ := wire.ParseCallRef(call.ID)
	answer := "agentd.in.human_interaction.agentd_permission_request.clerk." + wire.NewRunKey("one").String() + "." + ref.ID
	before := s.stored()
	connect := func(who, proof string) (*nats.Conn, error) {
		return nats.Connect("nats://"+s.address, nats.Token(proof), nats.CustomInboxPrefix("_INBOX_agentd_"+who), nats.NoReconnect(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	}
	claims := func(name string, groups ...string) map[string]any {
		return map[string]any{"preferred_username": name, "groups": groups}
	}
	publish := func(who, proof, subject string) {
		t.Helper()
		nc, err := connect(who, proof)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		refused := len(s.violations.said())
		if err := nc.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if err := nc.FlushTimeout(wait); err != nil {
			t.Fatal(err)
		}
		if len(s.violations.said()) == refused {
			t.Errorf("the server lets %s publish on %s", who, subject)
		}
	}
	jane := s.idp.Token(claims("jane", "desk"))
	publish("jane", jane, answer+".bob")
	publish("jane", jane, answer)
	publish("jane", jane, "agentd.start.clerk.jane")
	publish("jane", jane, "agentd.run.001.aaaa")
	publish("jane", jane, "$JS.API.STREAM.DELETE.AGENTD_RUN")
	publish("jane", s.idp.Token(claims("jane", "money")), answer+".jane") // her group is another domain's

	for what, proof := range map[string]string{
		"a key that is not the provider's": s.idp.Forged(claims("jane", "desk")), "no proof": "jane", "a viewer": s.idp.Token(claims("jane", "staff")),
		"no group": s.idp.Token(claims("jane")), "a name without an account": s.idp.Token(claims("eve", "desk")),
		"a worker": s.idp.Token(claims("worker", "desk")), "the account of the streams": s.idp.Token(claims("AGENTD", "desk")),
	} {
		if nc, err := connect("x", proof); err == nil {
			nc.Close()
			t.Errorf("%s is let in", what)
		}
	}
	// A wrong password does not prove it either, and those of the file count as before.
	if nc, err := nats.Connect("nats://jane:wrong@" + s.address); err == nil {
		nc.Close()
		t.Error("a wrong password is let in")
	}
	s.as("jane", "approvals", "list")
	if after := s.stored(); after != before {
		t.Errorf("%d messages were stored", after-before)
	}
	contains(t, s.as("operator", "runs", "list", "--status", "waiting"), "one")
}

// Who may steer runs does so in their own name, and who is in no group is not let in.
func TestConsole_SteersAsWhoLoggedIn(t *testing.T) {
	s := startStaffed(t)
	b := identity.Browse(t, s.base)
	if status, page := b.Get("/runs?q=status:waiting"); status != http.StatusOK || !strings.Contains(page, `id="log-in"`) || strings.Contains(page, "token") {
		t.Fatalf("somebody comes to a page with %d:\n%s", status, page)
	}
	if status, _ := b.Post("/agents/clerk/start", nil); status != http.StatusForbidden {
		t.Errorf("somebody starts a run, and gets %d", status)
	}
	s.idp.LogsIn("eve", "guests")
	if status, page := b.LogIn(); status != http.StatusForbidden || !strings.Contains(page, "eve is in none of the groups") {
		t.Errorf("who is in no group comes to a page with %d:\n%s", status, page)
	}
	if status, page := b.Get("/login/callback?state=a&code=b"); status != http.StatusForbidden || !strings.Contains(page, "log in again") {
		t.Errorf("a login that nobody began comes to a page with %d:\n%s", status, page)
	}
	oda := s.login("oda", "ops", strings.Repeat("a long name of a group ", 200)) // more than one cookie holds
	if status, page := oda.Post("/agents/clerk/start", url.Values{"name": {"hers"}, "key": {"k"}, "field.message": {"Pay"}}); status != http.StatusOK {
		t.Fatalf("oda gets %d:\n%s", status, page)
	}
	s.request("hers")
	_, page := oda.Get("/runs/hers")
	contains(t, page, "<dt>Started by</dt><dd>oda</dd>")
	for _, verb := range []string{"pause", "resume", "cancel"} {
		if status, page := oda.Post("/runs/hers/"+verb, nil); status != http.StatusOK {
			t.Errorf("%s: oda gets %d:\n%s", verb, status, page)
		}
	}
	s.eventually("the run is cancelled", func() bool {
		return strings.Contains(s.as("operator", "runs", "list", "--status", "done"), "hers")
	})
	_, page = oda.Post("/logout", nil)
	contains(t, page, `id="log-in"`)
	if cookies := oda.Cookies(); len(cookies) > 0 {
		t.Errorf("after the logout the browser keeps %d cookies", len(cookies))
	}
}

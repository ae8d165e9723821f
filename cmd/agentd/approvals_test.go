package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/requests"
	"agentd/internal/setup"
)

const (
	clerk = `agents:
  - name: clerk
    model: {name: gpt-4o-mini}
    tools:
      services: [{contract: pay.yaml, as: pay}]
      builtin: [ask_question]
    permissions:
      rules: [{name: money, tools: [pay], reason: it moves money, risk: high}]
      scopes: [call, run+tool, run+tool+pattern]
`
	payContract = `uri: "#/bank/pay"
type: bank.pay
versions:
  1.0.0:
    accepts: {type: object, properties: {amount: {type: number, minimum: 0}, to: {type: string}}, required: [amount, to], additionalProperties: false}
    emits: {bank.paid: {type: object}}
`
	clerkScript = `conversations:
  - replies:
      - calls:
          - {name: pay, arguments: {amount: 120, to: "ACME \u202e.dtL\u001b[2J"}}
          - {name: ask_question, arguments: {question: "Which account?", suggestions: [Current, Savings]}}
      - text: Paid.
`
)

// clerkProject is a folder with an agent that asks before it pays. settings are further ones.
func clerkProject(t *testing.T, settings string) (config, script string) {
	t.Helper()
	dir := t.TempDir()
	config, script = filepath.Join(dir, "agentd.yaml"), filepath.Join(dir, "script.yaml")
	write(t, config, settings+clerk)
	write(t, filepath.Join(dir, "pay.yaml"), payContract)
	write(t, script, clerkScript)
	return config, script
}

// asks starts a run of the clerk and returns the short ids of what it asks: its permission request, and its question.
func (s *system) asks(run string) (request, question string) {
	s.t.Helper()
	s.expect(cli.ExitOK, "run", "clerk", "-m", "Pay", "--subject", run, "-d")
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		out, _ := s.expect(cli.ExitOK, "approvals", "list", "-o", "json")
		var items []requests.Item
		if err := json.Unmarshal([]byte(out), &items); err != nil {
			s.t.Fatalf("%s is not a list: %v", out, err)
		}
		for _, i := range items {
			switch {
			case i.Run != run:
			case i.Kind == requests.KindPermission:
				request = i.Short
			default:
				question = i.Short
			}
		}
		if request != "" && question != "" {
			return request, question
		}
	}
	s.t.Fatalf("run %s asks nothing", run)
	return "", ""
}

func TestApprovals_AreListedShownAndDecided(t *testing.T) {
	config, script := clerkProject(t, "approvals: {as: jane}\n")
	s := startDev(t, config, script)
	out, _ := s.expect(cli.ExitOK, "approvals", "list")
	contains(t, out, "nothing waits for a person")
	request, question := s.asks("one")
	out, _ = s.expect(cli.ExitOK, "approvals", "list")
	contains(t, out, "EXPIRES IN", request, "pay", "high", `{"amount":120,"to":"ACME \u202e.dtL\u001b[2J"}`, question, "(question)", "Which account?")
	out, _ = s.expect(cli.ExitOK, "approvals", "show", request)
	contains(t, out, "it moves money; risk high", "arguments, written by the model", `"to": "ACME \u202e.dtL\u001b[2J"`,
		"run+tool+pattern", "#/bank/pay/1.0.0", "approvals approve "+request)
	for _, bad := range []string{"\u202e", "\x1b"} {
		if strings.Contains(out, bad) {
			t.Errorf("%q reaches the terminal", bad)
		}
	}
	out, _ = s.expect(cli.ExitOK, "approvals", "show", question)
	contains(t, out, "text, written by the model", "Which account?", "1. Current", "2. Savings")

	_, problem := s.expect(cli.ExitFailure, "approvals", "approve", request, "--scope", "principal+agent+tool")
	contains(t, problem, "was not offered; offered: call, run+tool, run+tool+pattern")
	_, problem = s.expect(cli.ExitUsage, "approvals", "approve", request, "--pattern", "args.amount <")
	contains(t, problem, "is not a CEL expression")
	_, problem = s.expect(cli.ExitFailure, "approvals", "edit", request, "--args", `{"amount": -1, "to": "ACME"}`)
	contains(t, problem, "$.amount: expected at least 0, got number -1")
	_, problem = s.expect(cli.ExitUsage, "approvals", "edit", request)
	contains(t, problem, "an editor needs a terminal")
	_, problem = s.expect(cli.ExitFailure, "approvals", "edit", request, "--args", `{"to": "ACME \u202e.dtL\u001b[2J", "amount": 120}`)
	contains(t, problem, "nothing is different")
	out, problem = s.expect(cli.ExitOK, "approvals", "edit", request, "--args", `{"amount": 40, "to": "ACME"}`, "--reason", "half")
	contains(t, out, `pay {"amount":40,"to":"ACME"}`, "allowed; the call goes out")
	contains(t, problem, `-   "amount": 120,`, `+   "amount": 40,`, "as jane (approvals.as")
	_, problem = s.expect(cli.ExitFailure, "approvals", "deny", request, "--reason", "late")
	contains(t, problem, "is not open: it was decided")
	out, _ = s.expect(cli.ExitOK, "approvals", "answer", question, "Savings")
	contains(t, out, "answered; the run goes on")

	out, _ = s.expect(cli.ExitOK, "approvals", "log", "one")
	contains(t, out, "requested  pay", "decided    pay   jane: allow call: half", `edited     pay   {"amount":40,"to":"ACME"}`, "made       pay   #/bank/pay/1.0.0")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "one")
	contains(t, out, `edited   to {"amount":40,"to":"ACME"} (jane)`)
	out, _ = s.expect(cli.ExitOK, "approvals", "log", "-o", "json")
	contains(t, out, `"who": "jane"`, `"policy": "`, `"entry": "`, `"args_sha256": "`)
}

// An approval of a run that is paused does not say that the call goes out.
func TestApprovals_APausedRunMakesItsCallWhenItIsResumed(t *testing.T) {
	config, script := clerkProject(t, "")
	s := startDev(t, config, script)
	request, _ := s.asks("one")
	s.expect(cli.ExitOK, "runs", "pause", "one")
	out, _ := s.expect(cli.ExitOK, "approvals", "approve", request)
	contains(t, out, "allowed; the run is paused, and the call goes out when it is resumed: agentd", "runs resume one\n")
	out, _ = s.expect(cli.ExitOK, "approvals", "log", "one")
	if strings.Contains(out, "made  ") {
		t.Errorf("the call of a paused run is made:\n%s", out)
	}
}

// Where the policy has results: true, a request is shown with the command that gives the call its result.
func TestApprovals_AResultIsGiven(t *testing.T) {
	config, script := clerkProject(t, "")
	write(t, config, clerk+"      results: true\n")
	s := startDev(t, config, script)
	request, question := s.asks("one")
	out, _ := s.expect(cli.ExitOK, "approvals", "show", request)
	contains(t, out, "approvals edit "+request+"\n", "approvals give "+request+" RESULT\n")
	_, problem := s.expect(cli.ExitUsage, "approvals", "give", request, "paid")
	contains(t, problem, "the result is not JSON: paid")
	out, _ = s.expect(cli.ExitOK, "approvals", "give", request, `{"by": "hand"}`)
	contains(t, out, "given; the call is not made, and the model is told this result")
	s.expect(cli.ExitOK, "approvals", "answer", question, "Savings")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "one")
	contains(t, out, `{"by":"hand"}`)
}

func TestApprovals_DenyAskBackAndWiderScope(t *testing.T) {
	config, script := clerkProject(t, "")
	s := startDev(t, config, script)
	request, _ := s.asks("denied")
	out, _ := s.expect(cli.ExitOK, "approvals", "deny", request, "--reason", "paid already", "--as", "joe")
	contains(t, out, "denied; the model is told")
	request, _ = s.asks("asked")
	out, _ = s.expect(cli.ExitOK, "approvals", "ask", request, "Which invoice?", "--as", "joe", "-o", "json")
	contains(t, out, `"state": "counted"`, `"decision": "ask"`, `"who": "joe"`)
	request, question := s.asks("wider")
	_, problem := s.expect(cli.ExitUsage, "approvals", "approve", request, "--pattern", "args.amount < 200", "--uses", "0", "--as", "joe")
	contains(t, problem, `--uses: want a whole number from 1, got "0"`)
	out, _ = s.expect(cli.ExitOK, "approvals", "approve", request, "--pattern", "args.amount < 200", "--uses", "3", "--for", "1h", "--as", "joe")
	contains(t, out, "allowed; the call goes out, and further ones within run+tool+pattern")
	_, problem = s.expect(cli.ExitFailure, "approvals", "approve", question)
	contains(t, problem, question+" is a question, not a permission request")
	_, problem = s.expect(cli.ExitUsage, "approvals", "approve", request, "--as", "no token")
	contains(t, problem, `"no token" cannot be a principal`)
	_, problem = s.expect(cli.ExitFailure, "approvals", "answer", question, "--input", `{"answer": 5}`)
	contains(t, problem, "$.answer: expected string, got number 5")
	s.expect(cli.ExitUsage, "approvals", "answer", question)
	s.expect(cli.ExitOK, "runs", "cancel", "wider")
	_, problem = s.expect(cli.ExitFailure, "approvals", "show", question)
	contains(t, problem, "is not open")
}

// Nobody decides: another domain is asked, which may, and then the call is denied. The log tells all of it.
func TestApprovals_EscalationIsShownAndLogged(t *testing.T) {
	config, script := clerkProject(t, "")
	write(t, config, "domains: [the.boss]\n"+strings.Replace(clerk, "      scopes:", `      expires: 100ms
      escalate: [{domain: the.boss, expires: 1h}]
      scopes:`, 1))
	s := startDev(t, config, script)
	s.expect(cli.ExitOK, "run", "clerk", "-m", "Pay", "--subject", "late", "-d")
	var items []requests.Item
	for deadline := time.Now().Add(wait); len(items) == 0 && time.Now().Before(deadline); {
		out, _ := s.expect(cli.ExitOK, "approvals", "list", "--domain", "the.boss", "-o", "json")
		if err := json.Unmarshal([]byte(out), &items); err != nil {
			t.Fatalf("%s is not a list: %v", out, err)
		}
	}
	if len(items) != 1 {
		t.Fatalf("the boss is asked %d times", len(items))
	}
	out, _ := s.expect(cli.ExitOK, "approvals", "show", items[0].Short, "--domain", "the.boss")
	contains(t, out, "1 domain did not decide in time", "approvals approve "+items[0].Short+" --domain the.boss")
	_, problem := s.expect(cli.ExitFailure, "approvals", "approve", items[0].Short)
	contains(t, problem, "with --domain '*' for all domains")
	s.expect(cli.ExitOK, "approvals", "deny", items[0].Short, "--domain", "the.boss", "--reason", "no")
	all, _ := s.expect(cli.ExitOK, "approvals", "log", "-o", "json")
	for domain, want := range map[string]string{"the.boss": all, "*": all, "the.cook": "[]\n"} {
		if log, _ := s.expect(cli.ExitOK, "approvals", "log", "--domain", domain, "-o", "json"); log != want || len(all) < 100 {
			t.Errorf("the log of %s is\n%s\nwant\n%s", domain, log, want)
		}
	}
	s.expect(cli.ExitUsage, "approvals", "grants", "--domain", "the.boss")
	out, _ = s.expect(cli.ExitOK, "approvals", "log", "late")
	contains(t, out, "escalated  pay   nobody decided in time; the.boss is asked", "deny call: no")
}

// Without a terminal, watch prints what is open and what changes.
func TestApprovals_WatchPrintsChanges(t *testing.T) {
	config, script := clerkProject(t, "")
	s := startDev(t, config, script)
	request, _ := s.asks("before")
	var out, errors output
	s.background(&out, &errors, "approvals", "watch")
	s.until(&out, "added    "+request)
	s.expect(cli.ExitOK, "approvals", "deny", request)
	s.until(&out, "removed")
	s.until(&s.out, `"message":"pay is not allowed"`) // which the model is told
}

// The desk of dev, over HTTP, and its webhook.
func TestDev_ServesTheDesk(t *testing.T) {
	hooked := make(chan string, 8)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hooked <- r.Header.Get("Webhook-Id") }))
	defer hook.Close()
	t.Setenv("HOOK_SECRET", "s3cret")
	t.Setenv(setup.DefaultTokenEnv, "")
	config, script := clerkProject(t, "approvals:\n  http: 127.0.0.1:0\n  webhooks: [{url: "+hook.URL+", secret_env: HOOK_SECRET}]\n")
	s := startDev(t, config, script)
	_, rest, _ := strings.Cut(s.out.String(), "approvals http")
	address, _, _ := strings.Cut("http"+rest, ",")
	request, _ := s.asks("one")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/"+request, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s %s, %v", address, response.Status, body, err)
	}
	contains(t, string(body), `"tool":"pay"`)
	_, problem := s.expect(cli.ExitUsage, "approvals", "serve", "--domain", "the.boss")
	contains(t, problem, "webhooks are told of approvals.domains")
	told := map[string]bool{}
	for len(told) < 2 {
		select {
		case id := <-hooked:
			told[id] = true
		case <-time.After(wait):
			t.Fatalf("the webhook was told of %v alone", told)
		}
	}
}

// Where principals are required, agentd dev takes the operating system's user for who starts a run.
func TestApprovals_DevStartsRunsAsTheSystemsUser(t *testing.T) {
	if setup.SystemUser() == "" {
		t.Skip("the operating system's user has no name")
	}
	config, script := clerkProject(t, "identity: required\napprovals: {as: jane}\n")
	s := startDev(t, config, script)
	request, _ := s.asks("one")
	out, _ := s.expect(cli.ExitOK, "approvals", "show", request)
	contains(t, out, "started by   "+setup.SystemUser())
}

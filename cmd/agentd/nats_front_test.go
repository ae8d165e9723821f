package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// An MCP host and its agents on a server that enforces what a client may do. Clients cancel their own
// runs, and are told at once that they may not cancel others.
func TestNATSConfig_SufficesForMCP(t *testing.T) {
	g := startGuarded(t, "")
	g.serve(func() {})
	h := stdioHost(t, g.system, "--nats", g.url("shop"), "--wait", "2s")
	state := fields(t, h.call(t, "clerk", "order-1", map[string]any{"message": "Pay"}))
	handle, _ := state["run"].(string)
	_, run, _ := strings.Cut(handle, "/")
	g.as("jane", "approvals", "approve", g.request(run).Short)
	g.answer(run, "Current")
	g.ended("shop", run)
	got, err := json.Marshal(h.call(t, "run_result", "", map[string]any{"run": handle}))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(got), "Paid.")
	if said := g.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what a client needs:\n%s", strings.Join(said, "\n"))
	}

	state = fields(t, h.call(t, "clerk", "order-2", map[string]any{"message": "Pay"}))
	if cancelled := h.call(t, "run_cancel", "", map[string]any{"run": state["run"]}); cancelled.IsError {
		t.Errorf("a client cancels its run: %+v", cancelled)
	}
	handle, _ = state["run"].(string)
	_, run, _ = strings.Cut(handle, "/")
	g.ended("shop", run)
	g.as("ann", "run", "clerk", "-m", "Pay", "--subject", "of-ann", "-d")
	g.request("of-ann")
	cancelled := h.call(t, "run_cancel", "", map[string]any{"run": "clerk/of-ann"})
	text, err := json.Marshal(cancelled.Content)
	if err != nil || !cancelled.IsError {
		t.Errorf("a client cancels the run of somebody else: %+v, %v", cancelled, err)
	}
	contains(t, string(text), "is not a handle of a run")
	h.close(t)
}

// A webhook is delivered by the desk of an approver, with the rights that approvers have.
func TestNATSConfig_SufficesForWebhooks(t *testing.T) {
	t.Setenv("HOOK_SECRET", "of-the-hook")
	told := make(chan string, 16)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		told <- string(body)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer hook.Close()
	g := startGuarded(t, "approvals: {webhooks: [{url: \""+hook.URL+"\", secret_env: HOOK_SECRET}]}\n")
	var out, errors output
	g.background(&out, &errors, "approvals", "serve", "--nats", g.url("jane"))
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	for late := time.After(wait); ; {
		var body string
		select {
		case body = <-told:
		case <-late:
			t.Fatalf("nobody told the webhook of the request:\n%s", errors.String())
		}
		if strings.Contains(body, `"tool":"pay"`) {
			contains(t, body, "agentd.approvals.added", `"run":"one"`)
			break
		}
	}
	if said := g.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what webhooks need:\n%s", strings.Join(said, "\n"))
	}
	// It reads the calls of a domain: nobody else may, nor change how far it is.
	config, err := os.ReadFile(g.serverFile(0))
	if err != nil {
		t.Fatal(err)
	}
	consumer := regexp.MustCompile(`hook_[A-Za-z0-9_-]+`).FindString(string(config))
	api := "$JS.API.CONSUMER."
	change := []string{
		api + "DELETE.AGENTD_OUT." + consumer, api + "CREATE.AGENTD_OUT." + consumer,
		api + "CREATE.AGENTD_OUT." + consumer + ".agentd.out.human_interaction.>",
	}
	g.refused("jane", change, nil)
	g.refused("ann", append(change, api+"INFO.AGENTD_OUT."+consumer, api+"MSG.NEXT.AGENTD_OUT."+consumer, "$JS.ACK.AGENTD_OUT."+consumer+".1.1.1.1.0"), nil)
}

// A console of an operator that has the index of runs answers the commands of operators, who have the same inbox.
func TestNATSConfig_SufficesForTheIndexOfRuns(t *testing.T) {
	g := startGuarded(t, "")
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	g.request("one")
	defer g.console("--nats", g.url("operator"), "--index", t.TempDir())()
	g.holds("the run is listed by the index", func() bool {
		g.as("operator", "reconcile", "--older-than", "1s")
		return strings.Contains(g.as("operator", "runs", "list", "run:one"), "waiting")
	})
	if said := g.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what an operator needs:\n%s", strings.Join(said, "\n"))
	}
}

package core_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
)

// parseAgent reads the agent of a transcript, one setting a line; see testdata/README.md.
func parseAgent(t *testing.T, text string) *core.Spec {
	t.Helper()
	spec := newSpec()
	for _, line := range lines(text) {
		words := strings.Fields(line)
		switch words[0] {
		case "tool":
			spec.Tools = append(spec.Tools, parseTool(t, words[1:]))
		case "stop":
			spec.StopOn = words[1:]
		case "converse":
			spec.Converse = true
		case "blobs": // see play
		case "undo":
			spec.Undo = undoneBy(map[string]string{words[1]: words[2]})
		case "tokens":
			spec.MaxTokens = int64(number(t, words[1]))
		case "children":
			spec.MaxChildren = number(t, words[1])
		case "ends-on":
			parseStop(t, &spec.Stop, words[1:])
		case "no-tool-call":
			spec.NoToolCall = core.NoToolCall{
				Remind: true, Accept: words[1] == "remind-then-accept", Limit: number(t, words[2]), Text: "Call a tool.",
			}
		case "context":
			spec.Contexts = append(spec.Contexts, parseContext(t, words[1:]))
		case "guards":
			parseGuards(t, &spec.Guards, words[1:])
		case "steering":
			spec.Steering = sdk.SteeringPolicy(words[1])
		case "sequential":
			spec.Sequential = true
		case "batch":
			spec.Batch = true
		case "continues":
			spec.Continues = true
		case "gates":
			spec.Hooked = true
		case "hooks":
			spec.Hooked, spec.Reviews, spec.Ends = true, true, true
		case "interactions":
			spec.MaxTurns = number(t, words[1])
		case "deadline":
			spec.RunDeadline = millis(t, words[1])
		case "permission": // see policy
			spec.NeedsRulings = true
		default:
			t.Fatalf("agent: unknown setting %q", line)
		}
	}
	return spec
}

// parseStop reads errors=N same-error=N repeats=N window=N text=T.
func parseStop(t *testing.T, stop *sdk.StopConditions, options []string) {
	t.Helper()
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "errors":
			stop.Errors = number(t, value)
		case "same-error":
			stop.SameError = number(t, value)
		case "repeats":
			stop.Repeats = number(t, value)
		case "window":
			stop.Window = number(t, value)
		case "text":
			stop.Text = append(stop.Text, value)
		default:
			t.Fatalf("ends-on: unknown condition %q", option)
		}
	}
}

// parseGuards reads errors=N failures=N duplicates=N.
func parseGuards(t *testing.T, guards *sdk.Guards, options []string) {
	t.Helper()
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "errors":
			guards.Errors = number(t, value)
		case "failures":
			guards.Failures = number(t, value)
		case "duplicates":
			guards.Duplicates = number(t, value)
		default:
			t.Fatalf("guards: unknown guard %q", option)
		}
	}
}

// parseContext reads SECTION [once] [required] and the options of a tool.
func parseContext(t *testing.T, words []string) core.ContextProvider {
	t.Helper()
	p := core.ContextProvider{Section: words[0]}
	options := []string{words[0], "service"}
	for _, word := range words[1:] {
		switch word {
		case "once":
			p.Once = true
		case "required":
			p.Required = true
		default:
			options = append(options, word)
		}
	}
	p.Service = parseTool(t, options)
	return p
}

// parseTool reads NAME service|inline, with priority=, timeout=, domains=, at-most-once, read-only.
func parseTool(t *testing.T, words []string) core.Tool {
	t.Helper()
	tool := inline(words[0], false)
	if words[1] == "service" {
		tool = service(words[0], 30*second)
	}
	for _, option := range words[2:] {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "priority":
			tool.Priority = number(t, value)
		case "timeout":
			tool.Timeout = millis(t, value)
		case "attempts":
			tool.Retry = core.Retry{Attempts: number(t, value), Pause: second, Longest: minute}
		case "domains":
			tool.Domains = strings.Split(value, ",")
		case "parent-subject":
			tool.ParentSubject = true
		case "agent":
			tool.Agent = true
		case "tokens":
			tool.Agent, tool.Tokens = true, int64(number(t, value))
		case "at-most-once":
			tool.AtMostOnce = true
		case "read-only":
			tool.ReadOnly = true
		default:
			t.Fatalf("tool %s: unknown option %q", words[0], option)
		}
	}
	return tool
}

func lines(text string) []string {
	var l []string
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			l = append(l, line)
		}
	}
	return l
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func millis(t *testing.T, text string) int64 {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d.Milliseconds()
}

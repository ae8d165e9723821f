package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"agentd/internal/httpguard"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// AgentTool is an agent as MCP hosts see it.
type AgentTool struct {
	Agent, Description string
	// Accepts and Emits are the JSON Schemas of the input and of the answer.
	Accepts, Emits json.RawMessage
}

// RunState is what a host is told of a run.
type RunState struct {
	// Run is the handle that finds the run again.
	Run string `json:"run"`
	// Status is running, waiting or done.
	Status string `json:"status"`
	// WaitsFor says in words what the run waits for, people first.
	WaitsFor []string `json:"waits_for,omitempty"`
	// Output is the answer of a run that is done, Problem what it failed with.
	Output  json.RawMessage `json:"output,omitempty"`
	Problem *sdk.Error      `json:"-"`
}

// Done reports whether the run has ended.
func (s *RunState) Done() bool { return s.Output != nil || s.Problem != nil }

// Runs starts and finds the runs of agents. Safe for concurrent use.
type Runs interface {
	// Start starts a run, or finds the one that was started with the same key ("" is a run of its own).
	Start(ctx context.Context, agent, key string, input json.RawMessage) (run string, err error)
	// Await returns the state of a run when it has ended, or when ctx ends. progress is called with what happens.
	Await(ctx context.Context, run string, progress func(string)) (RunState, error)
	Cancel(ctx context.Context, run, reason string) error
}

// AgentsOptions are what an Agents server is made of.
type AgentsOptions struct {
	Agents []AgentTool
	Runs   Runs
	// Wait is how long a call waits for its run's end; then it answers with the run's handle.
	Wait    time.Duration
	Version string
	Logger  *slog.Logger
}

// Agents serves agents as MCP tools.
type Agents struct {
	AgentsOptions
	server *server.MCPServer
	// hostCancels says that a request which ends before its result was cancelled by the host, and not just cut off.
	hostCancels func() bool
}

// The tools beside the agents.
const (
	toolRunResult = "run_result"
	toolRunCancel = "run_cancel"
)

const runSchema = `{"type":"object","properties":{"run":{"type":"string","description":"The handle of the run."}},"required":["run"]}`

// NewAgents returns a server for the agents. The error says which of them cannot be a tool.
func NewAgents(o AgentsOptions) (*Agents, error) {
	a := &Agents{AgentsOptions: o, hostCancels: func() bool { return false }}
	a.server = server.NewMCPServer(ownName, o.Version, server.WithToolCapabilities(false), server.WithRecovery(),
		server.WithInstructions(
			"Each agent is a tool. A run may take longer than a call waits, or wait for a person: the answer then has the run's "+
				"handle, and "+toolRunResult+" goes on waiting."))
	taken := map[string]string{toolRunResult: ownName, toolRunCancel: ownName}
	for _, agent := range o.Agents {
		name := toolbox.Name(agent.Agent)
		if other, ok := taken[name]; ok {
			return nil, sdk.Errorf(sdk.CodeConfig, "agent %s has the tool name of %s: %s", agent.Agent, other, name)
		}
		taken[name] = agent.Agent
		output, err := outputSchema(agent.Emits)
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", agent.Agent, err)
		}
		if agent.Description == "" {
			agent.Description = "Runs the agent " + agent.Agent + "."
		}
		tool := mcp.NewToolWithRawSchema(name, agent.Description, agent.Accepts)
		tool.RawOutputSchema = output
		a.server.AddTool(tool, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return a.call(ctx, agent.Agent, r)
		})
	}
	result := mcp.NewToolWithRawSchema(toolRunResult,
		"Waits for the end of a run that was started before, and returns its answer or what it waits for.", json.RawMessage(runSchema))
	yes := true
	result.Annotations.ReadOnlyHint = &yes
	a.server.AddTool(result, a.result)
	a.server.AddTool(mcp.NewToolWithRawSchema(toolRunCancel, "Cancels a run.", json.RawMessage(runSchema)), a.cancel)
	return a, nil
}

// outputSchema is that of the agent's answer, or of the state of a run that goes on.
func outputSchema(emits json.RawMessage) (json.RawMessage, error) {
	const state = `{"type":"object","properties":{"run":{"type":"string"},"status":{"enum":["running","waiting"]},` +
		`"waits_for":{"type":"array","items":{"type":"string"}}},"required":["run","status"]}`
	var plain map[string]json.RawMessage
	if err := json.Unmarshal(emits, &plain); err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "its answer has no schema that is an object").WithCause(err)
	}
	defs := plain["$defs"]
	schema := map[string]any{"type": "object", "anyOf": []json.RawMessage{emits, json.RawMessage(state)}}
	if len(defs) > 0 {
		schema["$defs"] = defs // references in the answer's schema are to the root
	}
	return json.Marshal(schema)
}

// call runs an agent.
func (a *Agents) call(ctx context.Context, agent string, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	input := json.RawMessage(`{}`)
	if r.Params.Arguments != nil {
		var err error
		if input, err = json.Marshal(r.Params.Arguments); err != nil {
			return nil, fmt.Errorf("read arguments: %w", err)
		}
	}
	if len(r.Params.RawArguments) > 0 {
		input = r.Params.RawArguments // large integers survive
	}
	key := ""
	if r.Params.Meta != nil {
		key, _ = r.Params.Meta.AdditionalFields[metaIdempotencyKey].(string)
	}
	run, err := a.Runs.Start(ctx, agent, key, input)
	if err != nil {
		return failed(err), nil
	}
	return a.await(ctx, run, r)
}

func (a *Agents) await(ctx context.Context, run string, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	waiting, stop := context.WithTimeout(ctx, a.Wait)
	defer stop()
	progress := a.progress(ctx, r)
	progress("the run is " + run) // a host that loses the connection can find it by that
	state, err := a.Runs.Await(waiting, run, progress)
	if ctx.Err() != nil {
		a.cutOff(ctx, run)
		return nil, ctx.Err()
	}
	switch {
	case err != nil:
		return failed(err), nil
	case state.Problem != nil:
		return withRun(failed(state.Problem), run), nil
	case state.Done():
		return withRun(structured(state.Output), run), nil
	}
	data, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("encode the state of run %s: %w", run, err)
	}
	result := structured(data)
	text := fmt.Sprintf("The run %s goes on (%s). Call %s with its handle to wait for it.", run, state.Status, toolRunResult)
	if len(state.WaitsFor) > 0 {
		text += " It waits for " + strings.Join(state.WaitsFor, ", ") + "."
	}
	result.Content = append(result.Content, mcp.NewTextContent(text))
	return withRun(result, run), nil
}

// cutOff cancels the run when the host said so. A connection that ended leaves the run alone: it can be found again.
func (a *Agents) cutOff(ctx context.Context, run string) {
	if !a.hostCancels() {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	if err := a.Runs.Cancel(ctx, run, "cancelled by the MCP host"); err != nil {
		a.Logger.Warn("run could not be cancelled", "run", run, "error", err)
	}
}

// progress tells the host what happens, if it asked for that. A number that grows is all that the protocol wants.
func (a *Agents) progress(ctx context.Context, r mcp.CallToolRequest) func(string) {
	if r.Params.Meta == nil || r.Params.Meta.ProgressToken == nil {
		return func(string) {}
	}
	var n atomic.Int64
	return func(text string) {
		err := a.server.SendNotificationToClient(ctx, "notifications/progress", map[string]any{
			"progressToken": r.Params.Meta.ProgressToken, "progress": n.Add(1), "message": text,
		})
		if err != nil {
			a.Logger.Debug("progress could not be sent", "error", err)
		}
	}
}

func (a *Agents) result(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return a.await(ctx, r.GetString("run", ""), r)
}

func (a *Agents) cancel(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	run := r.GetString("run", "")
	if err := a.Runs.Cancel(ctx, run, "cancelled by the MCP host"); err != nil {
		return failed(err), nil
	}
	return mcp.NewToolResultText("The run " + run + " is asked to end."), nil
}

// metaRun is where a result names its run.
const metaRun = "dev.agentd/run"

func withRun(r *mcp.CallToolResult, run string) *mcp.CallToolResult {
	r.Meta = &mcp.Meta{AdditionalFields: map[string]any{metaRun: run}}
	return r
}

func structured(data json.RawMessage) *mcp.CallToolResult {
	r := mcp.NewToolResultText(string(data))
	r.StructuredContent = data
	return r
}

func failed(err error) *mcp.CallToolResult {
	e := sdk.AsError(err)
	text := string(e.Code) + ": " + e.Message
	for _, fault := range e.Faults {
		text += "; " + fault.String()
	}
	return mcp.NewToolResultError(text)
}

// Handler serves streamable HTTP at any path, to loopback names only where it listens on loopback. token, unless empty, is
// what requests must bear.
func (a *Agents) Handler(token string) http.Handler {
	// Without sessions, a stream that one host keeps open would get the progress of the calls of all others. There is nothing
	// to say on it.
	streamable := server.NewStreamableHTTPServer(a.server, server.WithStateLess(true), server.WithDisableStreaming(true),
		server.WithHeartbeatInterval(15*time.Second), server.WithStreamableHTTPLogger(a.Logger))
	guesses := httpguard.NewGuesses(a.Logger)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpguard.Foreign(r) || token == "" && !httpguard.Local(r.Host) {
			http.Error(w, "pages of other sites may not use this server", http.StatusForbidden)
			return
		}
		if token != "" && !admitted(w, r, guesses, token) {
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, wire.MaxData+64<<10)
		streamable.ServeHTTP(w, r)
	})
}

// admitted lets in who bears the token, and answers all others.
func admitted(w http.ResponseWriter, r *http.Request, guesses *httpguard.Guesses, token string) bool {
	in, err := guesses.Bears(r, token)
	switch e := sdk.AsError(err); {
	case err != nil:
		http.Error(w, e.Message, httpguard.Status(e.Code))
	case !in:
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a bearer token is required", http.StatusUnauthorized)
	}
	return in
}

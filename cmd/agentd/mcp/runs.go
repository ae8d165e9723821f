package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/core"
	"agentd/internal/mcp"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// mcpRuns are the runs that MCP hosts start, over the broker.
type mcpRuns struct{ c *cli.Client }

// mcpSource is what inits of MCP hosts have as their source; the id is the host's key.
const mcpSource = "agentd.mcp"

// handleSeparator is between agent and subject in the handle of a run; no agent's name has it.
const handleSeparator = "/"

// Start implements mcp.Runs. The init token, and so the run's name, follow from the key.
func (m *mcpRuns) Start(ctx context.Context, agent, key string, input json.RawMessage) (string, error) {
	if key != "" {
		key = "mcp-" + agent + "-" + key
	}
	run, err := m.runs().Start(ctx, client.Request{Agent: agent, Input: input, Key: key, Type: m.c.ContractType(agent)})
	return agent + handleSeparator + run.Name, err
}

func (m *mcpRuns) runs() *client.Client { return m.c.Speaking(mcpSource) }

// runOf takes only handles of runs that have no name of their own, as those that hosts start: they cannot be guessed, so that who
// has a handle was given it.
func runOf(handle string) (agent, subject string, err error) {
	agent, subject, ok := strings.Cut(handle, handleSeparator)
	token, unnamed := strings.CutPrefix(subject, wire.DefaultSubject(""))
	if !ok || wire.CheckName(agent) != nil || !unnamed || len(token) != tokenLength {
		return "", "", sdk.Errorf(sdk.CodeUnknownRun, "%q is not a handle of a run", show.Line(handle, show.LineMax))
	}
	return agent, subject, nil
}

// tokenLength is that of an init token.
const tokenLength = 26

// askAgain is how often the state of a run is asked for, when nothing is heard of it.
const askAgain = 10 * time.Second

// Await implements mcp.Runs. The host hears what happened before it listened, too.
func (m *mcpRuns) Await(ctx context.Context, handle string, progress func(string)) (mcp.RunState, error) {
	agent, subject, err := runOf(handle)
	if err != nil {
		return mcp.RunState{}, err
	}
	following, err := m.runs().Listen(client.Run{Agent: agent, Name: subject})
	if err != nil {
		return mcp.RunState{}, err
	}
	watching, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() {
		// It ends with the run or with this call.
		_ = following.Events(watching, wire.Mark{}, func(l wire.Live) {
			if text := toldToHost(l); text != "" {
				progress(text)
			}
		})
	})
	state, err := m.await(ctx, agent, subject, handle, progress)
	stop()
	background.Wait()
	return state, errors.Join(err, following.Close())
}

// await waits for the terminal event. While it does not come, the host hears that the run is alive, and the end of a run
// that was not started here is found by asking.
func (m *mcpRuns) await(ctx context.Context, agent, subject, handle string, progress func(string)) (mcp.RunState, error) {
	token, _ := strings.CutPrefix(subject, wire.DefaultSubject(""))
	for {
		waiting, stop := context.WithTimeout(ctx, askAgain)
		event, err := m.c.WaitDone(waiting, agent, wire.NewRunKey(subject), token)
		stop()
		if err == nil {
			return ended(handle, event.Type, event.Data), nil
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return mcp.RunState{}, err
		}
		state := m.state(ctx, agent, subject, handle)
		if state.Done() || ctx.Err() != nil {
			return state, nil //nolint:nilerr // that it goes on is an answer too
		}
		text := "the run is " + state.Status
		if len(state.WaitsFor) > 0 {
			text += " for " + strings.Join(state.WaitsFor, ", ")
		}
		progress(text)
	}
}

// state asks the workers; without an answer the run counts as running, because its init is stored.
func (m *mcpRuns) state(ctx context.Context, agent, subject, handle string) mcp.RunState {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cli.Patience)
	defer stop()
	state := mcp.RunState{Run: handle, Status: string(core.StatusRunning)}
	status, err := m.runs().Status(ctx, client.Run{Agent: agent, Name: subject})
	if err != nil {
		return state
	}
	if status.Terminal != nil {
		return ended(handle, status.Terminal.Type, status.Terminal.Data)
	}
	state.Status = string(status.Status)
	for _, call := range status.Waiting {
		switch call.Type {
		case sdk.TypePermissionRequest:
			state.WaitsFor = append(state.WaitsFor, "a person's permission for "+call.Tool)
		case sdk.TypePlanReview:
			state.WaitsFor = append(state.WaitsFor, "a person's approval of its plan")
		case sdk.TypeQuestion, sdk.TypeConversationTurn:
			state.WaitsFor = append(state.WaitsFor, "a person's answer")
		case "":
		default:
			state.WaitsFor = append(state.WaitsFor, call.Type)
		}
	}
	return state
}

func ended(handle, eventType string, data json.RawMessage) mcp.RunState {
	state := mcp.RunState{Run: handle, Status: string(core.StatusDone)}
	if problem, failed := wire.ProblemIn(eventType, data); failed {
		state.Problem = &sdk.Error{Code: problem.Code, Message: problem.ErrorMessage, Faults: problem.Faults}
		return state
	}
	state.Output = data
	return state
}

// toldToHost is a live event in words, "" for those that say nothing to a host.
func toldToHost(l wire.Live) string {
	var data struct {
		Tool  string `json:"tool"`
		Asked struct {
			Tool     string `json:"tool"`
			Question string `json:"question"`
		} `json:"asked"`
		Message  string       `json:"message"`
		Progress sdk.Progress `json:"progress"`
	}
	if err := json.Unmarshal(l.Data, &data); err != nil {
		return ""
	}
	switch l.Type {
	case wire.MilestoneStarted:
		return "the run has started"
	case wire.MilestoneCall:
		return "calls " + data.Tool
	case wire.MilestoneRequested:
		return "waits for a person's permission for " + data.Asked.Tool
	case wire.MilestoneAsked:
		return "waits for a person's answer: " + data.Asked.Question
	case wire.MilestoneTurn:
		return "waits for a person's answer: " + data.Message
	case "call.progress":
		return strings.TrimSpace(fmt.Sprintf("%s is at %g %s", data.Tool, data.Progress.Done, data.Progress.Message))
	}
	return ""
}

// Cancel implements mcp.Runs.
func (m *mcpRuns) Cancel(ctx context.Context, handle, reason string) error {
	agent, subject, err := runOf(handle)
	if err != nil {
		return err
	}
	run := client.Run{Agent: agent, Name: subject}
	asking, stop := context.WithTimeout(ctx, cli.Patience)
	status, err := m.runs().Status(asking, run)
	stop()
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}):
		return err
	case err == nil && status.Status == core.StatusDone:
		return sdk.Errorf(sdk.CodeMessageRefused, "the run is done, and cannot be cancelled any more")
	}
	// Where no worker answers, the cancel waits for one.
	return m.runs().Cancel(ctx, run, reason)
}

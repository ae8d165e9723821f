package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// doer does what a request asks of a client. tell prints an answer before the one that it returns.
type doer interface {
	do(ctx context.Context, r request, tell func(any)) (any, error)
}

// takeRequests is a client's program.
func takeRequests(ctx context.Context, d doer) error {
	out := json.NewEncoder(os.Stdout)
	tell := func(a any) {
		if err := out.Encode(a); err != nil {
			panic(err)
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		a, err := d.do(ctx, r, tell)
		if err != nil {
			e := sdk.AsError(err)
			a = map[string]any{"error": failure{string(e.Code), e.Message, e.Faults}}
		}
		tell(a)
	}
	return lines.Err()
}

var done = map[string]bool{"done": true}

// sdkClient is sdk/client.
type sdkClient struct{ *client.Client }

func serveClientSDK(ctx context.Context) error {
	o := client.FromEnvironment()
	o.As, o.Patience = os.Getenv("NATS_USER"), 100*time.Millisecond
	c, err := client.Connect(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(takeRequests(ctx, sdkClient{c}), c.Close())
}

func (c sdkClient) do(ctx context.Context, r request, tell func(any)) (any, error) {
	var run client.Run
	if r.Run != nil {
		run = client.Run{Agent: r.Run.Agent, Name: r.Run.Name, Init: r.Run.Init}
	}
	brief, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	switch r.Do {
	case "start":
		run, err := c.Start(brief, client.Request{
			Agent: r.Agent, Input: r.Data, Key: r.Key, Name: r.Name, Require: r.Require, Tokens: r.Tokens,
			AccessControl: r.AccessControl, TraceParent: r.TraceParent,
		})
		return map[string]runName{"run": {run.Agent, run.Name, run.Init}}, err
	case "status":
		status, err := c.Status(brief, run)
		return map[string]any{"status": status}, err
	case "list":
		runs := []string{}
		for s, err := range c.List(brief, r.Agent, wire.Status(r.Status)) {
			if err != nil {
				return nil, err
			}
			runs = append(runs, s.Run)
		}
		return map[string]any{"runs": runs}, nil
	case "wait":
		result, err := c.Wait(ctx, run)
		return map[string]any{"result": map[string]any{"type": result.Type, "data": result.Data, "reason": result.Reason}}, err
	case "follow":
		var after wire.Mark
		if r.After != nil {
			after = *r.After
		}
		for l, err := range c.Follow(ctx, run, after) {
			if err != nil {
				return nil, err
			}
			tell(map[string]told{"live": {l.Type, l.Revision, l.Index, l.Ephemeral}})
		}
		return done, nil
	case "send":
		_, err := c.Send(brief, run, r.Text)
		return done, err
	case "cancel":
		return done, c.Cancel(brief, run, r.Reason)
	case "answer":
		_, err := c.Answer(brief, run, r.Call, client.Reply{Text: r.Text, End: r.End})
		return done, err
	case "decide":
		_, err := c.Decide(brief, run, r.Call, sdk.PermissionDecision{Decision: sdk.Decision(r.Decision), ArgsHash: r.ArgsHash})
		return done, err
	}
	return nil, fmt.Errorf("unknown request %q", r.Do)
}

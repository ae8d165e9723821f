package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"agentd/internal/core"
	"agentd/internal/excerpt"
	"agentd/sdk"
)

// What the conversation has of a result that is kept as a blob, in characters. The ends are longer than what a model is shown.
const (
	keptHead = 48 << 10
	keptTail = 24 << 10
)

// storeLarge keeps a large result as a blob, before the entry that names it. What is left of it are its two ends.
func (a *activation) storeLarge(ctx context.Context, r *core.Result) error {
	if len(r.Data) <= core.LargeResult {
		return nil
	}
	stored := &core.Stored{Digest: core.Digest(r.Data), Size: len(r.Data)}
	if err := a.Store.PutBlob(ctx, a.key, stored.Digest, r.Data); err != nil {
		return fmt.Errorf("store the result of %s: %w", r.Call, err)
	}
	ends, err := core.EncodeJSON(excerpt.Of(excerpt.Text(string(r.Data)), keptHead, keptTail))
	if err != nil {
		return fmt.Errorf("encode the ends of the result of %s: %w", r.Call, err)
	}
	r.Data, r.Stored = ends, stored
	return nil
}

// wholeResult is the JSON of a result of the history.
func (a *activation) wholeResult(ctx context.Context, c *sdk.Content) (string, error) {
	data, err := a.wholeData(ctx, &core.Result{Call: c.CallID, Data: json.RawMessage(c.Text), Stored: a.state.StoredOf(c.CallID)})
	return string(data), err
}

// wholeData is the JSON of a result, also where that is kept as a blob.
func (a *activation) wholeData(ctx context.Context, r *core.Result) (json.RawMessage, error) {
	if r.Stored == nil {
		return r.Data, nil
	}
	data, err := a.Store.Blob(ctx, a.key, r.Stored.Digest)
	if errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("%w: the blob of the result of %s: %w", ErrCorrupt, r.Call, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the result of %s: %w", r.Call, err)
	}
	if core.Digest(data) != r.Stored.Digest {
		return nil, fmt.Errorf("%w: the blob of the result of %s has another content", ErrCorrupt, r.Call)
	}
	return data, nil
}

// stopText is the text that the output of a stopping run is built from.
func (a *activation) stopText(ctx context.Context) (string, error) {
	if c := a.state.StopResult(); c != nil && c.Size > 0 {
		data, err := a.wholeResult(ctx, c)
		return core.Unquoted(data), err
	}
	return a.state.StopText(), nil
}

// inline is a tool that runs in the worker. The one that shows more of a result is the runner's.
func (a *activation) inline(name string) (sdk.Tool, bool) {
	tool, ok := a.agent.Inline[name]
	if ok && tool.Run == nil && name == sdk.ToolReadMore {
		tool.Run = a.readMore
	}
	return tool, ok
}

// readMore shows the model a piece of a result of the run.
func (a *activation) readMore(ctx context.Context, call sdk.ToolCall) (json.RawMessage, error) {
	var args struct {
		Result string `json:"result"`
		Offset int    `json:"offset"`
	}
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return nil, sdk.Errorf(sdk.CodeContractViolation, "the arguments of %s cannot be read", call.Tool)
	}
	c := a.state.ResultNamed(args.Result)
	if c == nil {
		return nil, sdk.Errorf(sdk.CodeTool, "result %q does not exist; name it as the notice in the result does", args.Result)
	}
	data, err := a.wholeResult(ctx, c)
	if err != nil {
		a.Logger.ErrorContext(ctx, "result cannot be read", "run", a.state.Run, "call", c.CallID, "error", err)
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the result %q cannot be read now", args.Result)
	}
	text := excerpt.Text(data)
	if args.Offset > 0 && args.Offset >= len(text) {
		return nil, sdk.Errorf(sdk.CodeTool, "the result %q has %d bytes; choose an offset below that", args.Result, len(text))
	}
	piece, err := core.EncodeJSON(excerpt.At(text, args.Offset, a.agent.Shown(c.Tool)))
	if err != nil {
		return nil, fmt.Errorf("encode a piece of %s: %w", c.CallID, err)
	}
	return piece, nil
}

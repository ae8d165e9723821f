package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"agentd/sdk"
)

// connection is one initialised client of a server.
type connection struct {
	*client.Client
	process *process
	// lost is set when nothing can be expected of it any more.
	lost atomic.Bool
	// timeouts counts the calls in a row that it did not answer in time.
	timeouts atomic.Int32
	// ended is closed when all is let go of, which releases has done once.
	ended    chan struct{}
	releases sync.Once
	// requests counts what the server asks and is not answered yet.
	requests atomic.Int64
	// session is the one that the server has opened, in the older protocol over HTTP.
	session string
	// listed says that its tools were asked for, or will be.
	listed atomic.Bool
	// subscribed is closed when the server has promised to say when its tools change.
	subscribed    chan struct{}
	stopListening func()
	// givenUp are the calls that the server is being told of, that nobody waits for them any more.
	givenUp sync.WaitGroup

	mu sync.Mutex
	// calls are those that run, by their progress token.
	calls map[string]*exchange
	// exclusive makes calls wait for each other: a server that asks in the older protocol does not say what for.
	exclusive bool
	// asking is how many questions wait to learn which call they are of. parted counts how often that could not be told, and
	// kept says whether calls went on then.
	asking, parted int
	kept           bool
	// left is closed, and made anew, when a call ends.
	left    chan struct{}
	changed func()
	logger  *slog.Logger
}

// connect starts or dials the server and agrees on a protocol version, the newest that both speak; older leaves the newest
// out. changed is called when the server says that it has other tools. What was begun is returned with an error too: the next
// connection is made when that has ended.
func connect(ctx context.Context, s *ServerConfig, older bool, changed func(), logger *slog.Logger) (*connection, error) {
	c := &connection{
		calls: map[string]*exchange{}, left: make(chan struct{}), changed: changed, subscribed: make(chan struct{}),
		stopListening: func() {}, logger: slog.New(quiet{logger.Handler()}).With("server", s.Name),
	}
	t, err := c.transport(ctx, s, older)
	if err != nil {
		return nil, err
	}
	options := []client.ClientOption{client.WithElicitationHandler(elicitation{c})}
	if older {
		options = append(options, client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION))
	}
	c.Client = client.NewClient(t, options...)
	c.OnNotification(c.notified)
	// The transport keeps the context for what the server asks, so it must outlive this call.
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		_ = c.letGo(ctx)
		return c, fmt.Errorf("start MCP server %s: %w", s.Name, err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: ownName, Version: clientVersion}
	hello.Params.Capabilities.Elicitation = &mcp.ElicitationCapability{Form: &struct{}{}, URL: &struct{}{}}
	if _, err := c.Initialize(ctx, hello); err != nil {
		_ = c.letGo(ctx) // whatever its program says until it has ended is kept
		if c.process != nil && c.process.stderr.last() != "" {
			err = fmt.Errorf("%w; it says: %s", err, c.process.stderr.last())
		}
		return c, fmt.Errorf("connect to MCP server %s: %w", s.Name, err)
	}
	c.session = c.GetSessionId()
	c.listen(ctx)
	return c, nil
}

// refusesVersion reports whether a server refuses the newest protocol, which some do only after they have agreed on it.
func refusesVersion(err error) bool {
	_, refused := errors.AsType[mcp.UnsupportedProtocolVersionError](err)
	return refused
}

// clientVersion is what servers are told; not that of a release, because nothing may depend on it.
const clientVersion = "1"

// ownName is what agentd calls itself, as a client and as a server.
const ownName = "agentd"

func (c *connection) transport(ctx context.Context, s *ServerConfig, older bool) (transport.Interface, error) {
	if s.Command != "" {
		p, err := startProcess(ctx, s, c.logger)
		if err != nil {
			return nil, err
		}
		c.process = p
		return newStdioTap(c, p.stdout, &timely{File: p.stdin, timeout: writeTimeout, failed: c.lose}), nil
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "MCP server %s: its url cannot be read", s.Name)
	}
	options := []transport.StreamableHTTPCOption{
		transport.WithHTTPBasicClient(s.httpClient(u.Hostname())), transport.WithHTTPHeaders(s.Headers), transport.WithHTTPLogger(c.logger),
	}
	if older {
		options = append(options, transport.WithContinuousListening()) //nolint:staticcheck // it is for the older protocol only
	}
	h, err := transport.NewStreamableHTTP(s.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("MCP server %s: %w", s.Name, err)
	}
	return &httpTap{h, c}, nil
}

func (c *connection) alive() bool {
	if c.lost.Load() {
		return false
	}
	if c.process == nil {
		return c.GetSessionId() == c.session // it is gone when the server has forgotten it
	}
	select {
	case <-c.process.exited:
		return false
	default:
		return true
	}
}

// lose gives the connection up at once: nothing more of the server is read, the calls that run fail, and its program is ended.
func (c *connection) lose(why error) {
	c.logger.Debug("MCP server is given up", "error", why)
	c.lost.Store(true)
	_ = c.Close() // whether it can be closed does not matter any more
	c.releasing()
}

// letGo releases the connection, and waits until it has ended or ctx does.
func (c *connection) letGo(ctx context.Context) error {
	select {
	case <-c.releasing():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release lets go of everything, and returns when all has ended.
func (c *connection) release() { <-c.releasing() }

// releasing lets go of everything, once, however often it is called. What it returns is closed when all has ended.
func (c *connection) releasing() <-chan struct{} {
	c.releases.Do(func() {
		c.lost.Store(true)
		c.ended = make(chan struct{})
		go func() {
			defer close(c.ended)
			c.stopListening()
			if c.process != nil {
				c.process.close()
			} else {
				c.givenUp.Wait()
			}
			_ = c.Close() // the pipes are closed, and over HTTP it logs what fails
		}()
	})
	return c.ended
}

// notified handles what the server says by itself.
func (c *connection) notified(n mcp.JSONRPCNotification) {
	switch n.Method {
	case "notifications/tools/list_changed":
		c.changed()
	case mcp.MethodNotificationSubscriptionsAcknowledged:
		c.acknowledged()
	case "notifications/progress":
		c.mu.Lock()
		x := c.calls[fmt.Sprint(n.Params.AdditionalFields["progressToken"])]
		c.mu.Unlock()
		if x != nil {
			x.progress(n.Params.AdditionalFields)
		}
	}
}

// exchange is one request whose result we read ourselves, because the library answers a server's questions by itself, and
// leaves out of a result what it does not know.
type exchange struct {
	method string
	call   sdk.ToolCall
	// extra are parameters of a call that goes on: inputResponses and requestState.
	extra  map[string]any
	result json.RawMessage

	ctx    context.Context
	cancel context.CancelCauseFunc
	// answered are answers that people have given, asked what else the server asks, in the older protocol.
	answered []answered
	asked    *asked
	once     bool
	// reported is when progress was reported last, in Unix nanoseconds.
	reported atomic.Int64
}

// progressPause is the least time between two reports of a call's progress.
const progressPause = 100 * time.Millisecond

func (x *exchange) progress(fields map[string]any) {
	now, last := time.Now().UnixNano(), x.reported.Load()
	if now-last < int64(progressPause) || !x.reported.CompareAndSwap(last, now) {
		return
	}
	var p sdk.Progress
	p.Done, _ = fields["progress"].(float64)
	p.Total, _ = fields["total"].(float64)
	p.Message, _ = fields["message"].(string)
	sdk.ReportProgress(x.ctx, p)
}

type exchangeKey struct{}

// errInputRequired ends the library's part of a call that asks.
var errInputRequired = errors.New("input is required")

func tapped(
	ctx context.Context, r transport.JSONRPCRequest,
	send func(context.Context, transport.JSONRPCRequest) (*transport.JSONRPCResponse, error),
) (*transport.JSONRPCResponse, error) {
	if r.Method == string(mcp.MethodServerDiscover) {
		return discovered(send(ctx, r))
	}
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	if x == nil || x.method != r.Method {
		return send(ctx, r)
	}
	if len(x.extra) > 0 {
		params, err := merged(r.Params, x.extra)
		if err != nil {
			return nil, err
		}
		r.Params = params
	}
	resp, err := send(ctx, r)
	if err != nil || resp == nil || resp.Error != nil {
		return resp, err
	}
	x.result = resp.Result
	var kind struct {
		ResultType string `json:"resultType"`
	}
	if json.Unmarshal(resp.Result, &kind) == nil && kind.ResultType == "input_required" {
		return nil, errInputRequired
	}
	return resp, nil
}

// discovered takes an answer without versions, which older servers give to methods that they do not know, as what it is.
func discovered(resp *transport.JSONRPCResponse, err error) (*transport.JSONRPCResponse, error) {
	if err != nil || resp == nil || resp.Error != nil {
		return resp, err
	}
	var result struct {
		Versions []string `json:"supportedVersions"`
	}
	if json.Unmarshal(resp.Result, &result) == nil && len(result.Versions) > 0 {
		return resp, nil
	}
	return transport.NewJSONRPCErrorResponse(resp.ID, mcp.METHOD_NOT_FOUND, "the server is of an older protocol", nil), nil
}

// merged adds parameters to those that the library made.
func merged(params any, extra map[string]any) (map[string]any, error) {
	data, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode parameters: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("encode parameters: %w", err)
	}
	all := map[string]any{}
	for name, value := range fields {
		all[name] = value
	}
	for name, value := range extra {
		all[name] = value
	}
	return all, nil
}

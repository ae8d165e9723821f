package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"agentd/internal/retry"
	"agentd/internal/toolbox"
	"agentd/sdk"
)

// Server is a toolset: an MCP server that is connected when it is first needed, and again when it was lost. Safe for
// concurrent use.
type Server struct {
	config ServerConfig
	logger *slog.Logger

	changed chan struct{}
	// older is set when the server refused the newest protocol.
	older atomic.Bool

	mu     sync.Mutex
	conn   *connection
	closed bool
	// connecting is closed when the attempt that runs has ended.
	connecting chan struct{}
	pauses     *retry.Sequence
	notBefore  time.Time
}

// NewServer returns a toolset for the server. It connects to nothing yet.
func NewServer(config ServerConfig, logger *slog.Logger) (*Server, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	return &Server{config: config, logger: logger, changed: make(chan struct{}, 1), pauses: connecting.Start()}, nil
}

// connecting is how a server is connected again that was lost or cannot be reached.
var connecting = retry.Pauses{First: 250 * time.Millisecond, Longest: 30 * time.Second, Spread: 0.5}

// Name implements sdk.Toolset.
func (s *Server) Name() string { return s.config.Name }

// Required reports whether agents wait for the server.
func (s *Server) Required() bool { return s.config.Required }

// Changed gets a value when the server has other tools, at most one until it is taken.
func (s *Server) Changed() <-chan struct{} { return s.changed }

func (s *Server) noteChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Close implements sdk.Toolset. Calls that still run fail.
func (s *Server) Close() error {
	s.mu.Lock()
	conn := s.conn
	s.conn, s.closed = nil, true
	s.mu.Unlock()
	if conn != nil {
		conn.release()
	}
	return nil
}

// connected returns the connection, which it makes if there is none. One attempt serves all who wait; after one that
// failed, the next waits.
func (s *Server) connected(ctx context.Context) (*connection, error) {
	for {
		s.mu.Lock()
		switch {
		case s.closed:
			s.mu.Unlock()
			return nil, sdk.Errorf(sdk.CodeUnavailable, "MCP server %s is closed", s.config.Name)
		case s.conn != nil && s.conn.alive():
			conn := s.conn
			s.mu.Unlock()
			return conn, nil
		case s.connecting == nil:
			s.connecting = make(chan struct{})
			s.mu.Unlock()
			return s.reconnect(ctx)
		}
		wait := s.connecting
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, s.unavailable(ctx.Err())
		}
	}
}

func (s *Server) reconnect(ctx context.Context) (*connection, error) {
	s.mu.Lock()
	former, wait := s.conn, time.Until(s.notBefore)
	s.mu.Unlock()
	var conn *connection
	err := turn(ctx, former, wait)
	tried := err == nil
	if tried {
		conn, err = s.attempt(ctx)
	}
	s.mu.Lock()
	close(s.connecting)
	s.connecting = nil
	if tried {
		s.notBefore = time.Now().Add(s.pauses.Next()) // one that ends at once is not started in a loop
	}
	if conn != nil {
		s.conn = conn // else the former, which may not have ended yet
	}
	closed := s.closed
	s.mu.Unlock()
	if closed && conn != nil {
		conn.release() // nobody else does
	}
	switch {
	case err != nil:
		return nil, s.unavailable(err)
	case closed:
		return nil, s.unavailable(context.Canceled)
	}
	return conn, nil
}

// turn waits for that of the next connection: the former one, if there is one, has ended, and so has the pause.
func turn(ctx context.Context, former *connection, pause time.Duration) error {
	if former != nil {
		if err := former.letGo(ctx); err != nil {
			return err
		}
	}
	if pause > 0 {
		return retry.Sleep(ctx, pause)
	}
	return nil
}

// attempt makes a connection. Like connect it may return one with an error.
func (s *Server) attempt(ctx context.Context) (*connection, error) {
	conn, err := s.connect(ctx)
	switch {
	case refusesVersion(err) && !s.older.Swap(true):
	case err == nil && s.config.URL != "" && !mcp.IsModernProtocol(conn.ProtocolVersion()) && !s.older.Swap(true):
		// What a server of the older protocol says by itself comes on a stream that is opened only for such.
	default:
		return conn, err
	}
	if err := conn.letGo(ctx); err != nil {
		return conn, err
	}
	return s.connect(ctx)
}

func (s *Server) connect(ctx context.Context) (*connection, error) {
	return connect(ctx, &s.config, s.older.Load(), s.noteChange, s.logger)
}

// worked resets the pause between attempts: the server answered something.
func (s *Server) worked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauses.Reset()
	s.notBefore = time.Time{}
}

func (s *Server) unavailable(err error) error {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e
	}
	return (&sdk.Error{
		Code: sdk.CodeUnavailable, Message: fmt.Sprintf("the MCP server %s cannot be reached", s.config.Name), Retryable: true,
	}).WithCause(err)
}

const (
	// maxTools, maxPages and maxList (in bytes) bound what is taken of a server's list of tools.
	maxTools = 1000
	maxPages = 100
	maxList  = 16 << 20
	// maxSchemas bounds, in bytes, the schemas of a server's tools together: each takes much more when it is compiled.
	maxSchemas = 1 << 20
)

// listed is a tool as servers describe it. Schemas stay as they are: the library's types leave out what they do not know.
type listed struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations struct {
		ReadOnly    *bool `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
		OpenWorld   *bool `json:"openWorldHint"`
	} `json:"annotations"`
}

// Tools implements sdk.Toolset: the tools that the policy admits, by name. One that cannot be used is left out and logged;
// the others are not worse for it.
func (s *Server) Tools(ctx context.Context) ([]sdk.Tool, error) {
	conn, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.list(ctx, conn)
	if refusesVersion(err) && !s.older.Swap(true) {
		conn.lost.Store(true)
		if conn, err = s.connected(ctx); err == nil {
			found, err = s.list(ctx, conn)
		}
	}
	if err != nil {
		return nil, err
	}
	s.worked()
	slices.SortStableFunc(found, func(a, b listed) int { return cmp.Compare(a.Name, b.Name) })
	var tools []sdk.Tool
	taken, schemas := map[string]string{}, 0
	for _, l := range found {
		if !s.config.admits(l.Name) {
			continue
		}
		if schemas += len(l.InputSchema); schemas > maxSchemas {
			s.logger.Warn("tool of an MCP server is left out, because the schemas of its tools are too large", "server", s.config.Name,
				"tool", l.Name, "bytes", schemas, "limit", maxSchemas)
			continue
		}
		tool := s.tool(l)
		named := tool
		named.Definition.Name = toolbox.ToolsetPrefix(s.config.Name) + named.Definition.Name
		if _, err := toolbox.New(sdk.AgentSpec{Name: s.config.Name}, []sdk.Tool{named}); err != nil {
			s.logger.Warn("tool of an MCP server cannot be used", "server", s.config.Name, "tool", l.Name, "error", err)
			continue
		}
		if other, ok := taken[tool.Definition.Name]; ok {
			s.logger.Warn("tool of an MCP server has the name of another one", "server", s.config.Name, "tool", l.Name, "other", other)
			continue
		}
		taken[tool.Definition.Name] = l.Name
		tools = append(tools, tool)
	}
	return tools, nil
}

// list reads all pages.
func (s *Server) list(ctx context.Context, conn *connection) ([]listed, error) {
	conn.listed.Store(true)
	var all []listed
	bytes := 0
	var request mcp.ListToolsRequest
	for range maxPages {
		x := &exchange{method: string(mcp.MethodToolsList)}
		_, err := conn.ListToolsByPage(context.WithValue(ctx, exchangeKey{}, x), request)
		if err != nil && x.result == nil {
			s.judge(ctx, conn, err)
			return nil, s.unavailable(err)
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor mcp.Cursor        `json:"nextCursor"`
		}
		if err := json.Unmarshal(x.result, &page); err != nil {
			return nil, sdk.Errorf(sdk.CodeUnavailable, "the MCP server %s lists no tools that can be read", s.config.Name).WithCause(err)
		}
		for _, raw := range page.Tools {
			var l listed
			if err := json.Unmarshal(raw, &l); err != nil || l.Name == "" {
				s.logger.Warn("tool of an MCP server cannot be read", "server", s.config.Name, "error", err)
				continue
			}
			all = append(all, l)
		}
		if page.NextCursor == "" {
			return all, nil
		}
		bytes += len(x.result)
		if page.NextCursor == request.Params.Cursor || len(all) > maxTools || bytes > maxList {
			break
		}
		request.Params.Cursor = page.NextCursor
	}
	return nil, sdk.Errorf(sdk.CodeTooLarge, "the MCP server %s lists more than %d tools or %d bytes", s.config.Name, maxTools, maxList)
}

func (s *Server) tool(l listed) sdk.Tool {
	is := func(hint *bool, unless bool) bool {
		if hint != nil {
			return *hint
		}
		return unless
	}
	a := l.Annotations
	labels := sdk.ToolLabels{ReadOnly: is(a.ReadOnly, false), OpenWorld: is(a.OpenWorld, true)}
	labels.Destructive = !labels.ReadOnly && is(a.Destructive, true)
	atMostOnce := matches(s.config.AtMostOnce, l.Name)
	return sdk.Tool{
		Definition: sdk.ToolDefinition{
			Name: toolbox.Name(l.Name), Description: l.Description, Parameters: l.InputSchema,
		},
		Timeout: s.config.Timeout, AtMostOnce: atMostOnce, Labels: labels,
		Run: func(ctx context.Context, call sdk.ToolCall) (json.RawMessage, error) {
			return s.run(ctx, l.Name, atMostOnce, call)
		},
	}
}

// maxTimeouts is how many calls in a row a server on stdio may leave unanswered before it is started anew.
const maxTimeouts = 3

// judge gives a connection up after an error that it does not recover from by itself.
func (s *Server) judge(ctx context.Context, conn *connection, err error) {
	_, broken := errors.AsType[*transport.Error](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if conn.timeouts.Add(1) >= maxTimeouts {
			conn.lost.Store(true)
		}
	case broken && ctx.Err() == nil:
		conn.lost.Store(true)
	}
}

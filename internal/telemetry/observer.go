package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"agentd/internal/core"
	"agentd/internal/prompt"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Observer watches a runner; nil when telemetry is off.
func (t *Telemetry) Observer() runner.Observer {
	if t == nil {
		return nil
	}
	return observer{t}
}

type observer struct{ *Telemetry }

// activation is what is known of one activation so far. It belongs to the activation's goroutine; its tools read ctx.
type activation struct {
	message *runner.Message
	began   time.Time
	// ctx has the span, which begins when the run is known.
	ctx  context.Context
	span trace.Span
	// root is the traceparent for a run that the message starts.
	root string

	agent string
	// status and at are those of the run's last entry; at is in Unix milliseconds.
	status core.Status
	at     int64
	// turns and takeovers are the head's, as it was before.
	turns, takeovers int
	// tools are the names of the tools of the run's open calls, as the model knows them.
	tools map[string]string
}

type activationKey struct{}

func activationOf(ctx context.Context) *activation {
	a, _ := ctx.Value(activationKey{}).(*activation)
	return a
}

// within is ctx with the activation's span, for its children.
func within(ctx context.Context) context.Context {
	if a := activationOf(ctx); a != nil && a.span != nil && !trace.SpanContextFromContext(ctx).IsValid() {
		return trace.ContextWithSpan(ctx, a.span)
	}
	return ctx
}

// Begin implements runner.Observer.
func (o observer) Begin(ctx context.Context, m *runner.Message) context.Context {
	o.metrics.busy.Add(ctx, 1)
	return context.WithValue(ctx, activationKey{}, &activation{message: m, began: time.Now(), agent: m.Address.Agent})
}

// Loaded implements runner.Observer.
func (o observer) Loaded(ctx context.Context, h *core.Head, at int64) string {
	a := activationOf(ctx)
	if a == nil {
		return "" // repairs belong to no message
	}
	if a.status, a.at, a.turns, a.takeovers = h.Status, at, h.Turns, takeovers(h); h.Agent != "" {
		a.agent = h.Agent
	}
	a.remember(h)
	if a.span == nil && o.tracing() {
		o.open(ctx, a, h)
	}
	return a.root
}

func (a *activation) remember(h *core.Head) {
	for i := range h.Calls {
		if c := &h.Calls[i]; !c.Closed() {
			if a.tools == nil {
				a.tools = map[string]string{}
			}
			a.tools[c.ID] = c.Tool
		}
	}
}

// open begins the activation's span in the trace of its run.
func (o observer) open(ctx context.Context, a *activation, h *core.Head) {
	m := a.message
	parent := remote(h.Init.TraceParent, h.Init.TraceState)
	var own wanted
	starts := h.Status == ""
	if starts {
		if parent = remote(m.Event.TraceParent, m.Event.TraceState); !parent.IsValid() && m.Event.ID != "" {
			own = rootIDs(m.Event.Source, m.Event.ID)
		}
	}
	run := h.Run
	if starts {
		run = m.Run
	}
	attributes := []attribute.KeyValue{
		keyKind.String(kindAgent), keyOIAgent.String(a.agent), keySession.String(run),
		keyOperation.String(operationAgent), keyAgent.String(a.agent), keyConversation.String(run),
		keySystem.String(systemNATS), keyMessagingOp.String("process"), keyMessagingType.String("process"),
		keyDestination.String(m.Cause.Stream), keyMessage.String(m.Cause.EventID),
		keyRun.String(run), keyMessageFor.String(string(m.Address.Kind)), keySequence.Int64(int64(m.Cause.Sequence)),
	}
	if o.content && starts {
		attributes = append(attributes, keyInput.String(shown(string(m.Event.Data))), keyInputMime.String(mimeJSON))
	}
	a.ctx, a.span = o.tracer.Start(withIDs(trace.ContextWithRemoteSpanContext(ctx, parent), own), operationAgent+" "+a.agent,
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(a.began), trace.WithAttributes(attributes...),
		trace.WithLinks(awaited(m, h)...))
	if starts && !parent.IsValid() {
		a.root = traceparent(a.span.SpanContext())
	}
}

// mostLinks bounds the links of one span.
const mostLinks = 32

// awaited links to what a suspended run waited for: the answer, and the calls that are open.
func awaited(m *runner.Message, h *core.Head) []trace.Link {
	if h.Status == "" {
		return nil
	}
	var links []trace.Link
	link := func(parent string, attributes ...attribute.KeyValue) {
		if sc := remote(parent, ""); sc.IsValid() && len(links) < mostLinks {
			links = append(links, trace.Link{SpanContext: sc, Attributes: attributes})
		}
	}
	if m.Address.Kind == wire.KindIn {
		link(m.Event.TraceParent, keyMessageFor.String("answer"), keyCall.String(m.Address.Call.Call))
	}
	for i := range h.Calls {
		c := &h.Calls[i]
		if c.Closed() || c.Kind == core.CallInline {
			continue
		}
		id := wire.CallRef{ID: c.ID, Attempt: max(c.Attempt, 1)}.EventID()
		link(wire.EventTrace(h.Init.TraceParent, id), keyMessageFor.String("call"), keyCall.String(c.ID), keyTool.String(c.Tool))
	}
	return links
}

// Appended implements runner.Observer.
func (o observer) Appended(ctx context.Context, e *core.Entry, size int) {
	agent := metric.WithAttributeSet(attribute.NewSet(keyAgent.String(e.Head.Agent)))
	o.metrics.entrySize.Record(ctx, int64(size), agent)
	for _, part := range e.Parts() {
		o.appended(ctx, part, agent)
	}
}

// appended counts what a part of an entry tells.
func (o observer) appended(ctx context.Context, e *core.Entry, agent metric.MeasurementOption) {
	a, h := cmp.Or(activationOf(ctx), &activation{}), &e.Head
	if a.status == "" {
		o.metrics.started.Add(ctx, 1, agent)
	}
	if n := h.Turns - a.turns; n > 0 {
		o.metrics.turns.Add(ctx, int64(n), agent)
	}
	for _, g := range e.Guards {
		o.metrics.guarded.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(keyAgent.String(h.Agent), keyGuard.String(string(g.Guard)))))
	}
	if j := e.Judged; j != nil {
		o.metrics.judged.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(
			keyAgent.String(h.Agent), keyJudge.String(j.Judge), keyAccepted.Bool(j.Accepted))))
	}
	if offered := e.Offered; offered != nil {
		o.metrics.chosen.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(
			keyAgent.String(h.Agent), keyChosenBy.String(string(offered.By)), keyDegraded.Bool(offered.Degraded != ""))))
	}
	taken := takeovers(h)
	if taken > a.takeovers {
		o.metrics.takeovers.Add(ctx, 1, agent)
	}
	o.transition(ctx, a, e, agent)
	if a.span != nil && a.agent != h.Agent { // until the run was there, only its agent's token was known
		a.span.SetName(operationAgent + " " + h.Agent)
		a.span.SetAttributes(keyOIAgent.String(h.Agent), keyAgent.String(h.Agent))
	}
	a.status, a.at, a.turns, a.takeovers, a.agent = h.Status, e.At, h.Turns, taken, h.Agent
	a.remember(h)
	if a.span == nil {
		return
	}
	a.span.SetAttributes(keyStatus.String(string(h.Status)), keyRound.Int(h.Round))
	if taken > 0 {
		a.span.SetAttributes(keyTakeovers.Int(taken))
	}
	if h.Status == core.StatusDone {
		a.span.SetAttributes(keyReason.String(string(h.Reason)))
		if o.content && e.Terminal != nil {
			a.span.SetAttributes(keyOutput.String(shown(string(e.Terminal.Data))), keyOutputMime.String(mimeJSON))
		}
	}
}

func takeovers(h *core.Head) int {
	if h.Driver == nil {
		return 0
	}
	return h.Driver.Takeovers
}

// transition counts a change of the run's status.
func (o observer) transition(ctx context.Context, a *activation, e *core.Entry, agent metric.MeasurementOption) {
	h := &e.Head
	if a.status == h.Status {
		return
	}
	if a.status == core.StatusWaiting {
		o.metrics.suspended.Record(ctx, seconds(e.At-a.at), agent)
	}
	switch h.Status {
	case core.StatusWaiting:
		o.metrics.suspensions.Add(ctx, 1, agent)
	case core.StatusDone:
		o.metrics.finished.Add(ctx, 1, metric.WithAttributes(keyAgent.String(h.Agent), keyReason.String(string(h.Reason))))
	case core.StatusRunning:
	}
}

func seconds(millis int64) float64 { return float64(max(millis, 0)) / 1000 }

// Answered implements runner.Observer.
func (o observer) Answered(ctx context.Context, a runner.Attempt) {
	o.metrics.answers.Record(ctx, seconds(a.Millis), metric.WithAttributes(
		keyAgent.String(a.Agent), keyType.String(a.Type), keyOutcome.String(a.Outcome)))
}

// Budgeted implements runner.Observer.
func (o observer) Budgeted(ctx context.Context, agent string, l *prompt.Ledger) {
	for _, part := range []struct {
		name   string
		tokens int
	}{
		{"system", l.System},
		{"tools", l.Tools},
		{"summary", l.Summary},
		{"sections", l.Sections},
		{"history", l.History},
		{"output", l.Output},
		{"safety", l.Safety},
		{"remaining", l.Remaining},
	} {
		o.metrics.prompts.Record(ctx, int64(part.tokens), metric.WithAttributes(keyAgent.String(agent), keyPart.String(part.name)))
	}
}

// Tool implements runner.Observer.
func (o observer) Tool(ctx context.Context, tool sdk.Tool, call sdk.ToolCall) (json.RawMessage, error) {
	began := time.Now()
	var span trace.Span
	if o.tracing() {
		attributes := append(toolAttributes(call.Tool, call.ID, call.Run), keyToolTypeFunction)
		if o.content {
			attributes = append(attributes, o.arguments(call.Args)...)
		}
		ctx, span = o.tracer.Start(within(ctx), operationTool+" "+call.Tool, trace.WithAttributes(attributes...))
		defer span.End()
		if sc := span.SpanContext(); sc.IsValid() {
			call.TraceParent = traceparent(sc)
		}
	}
	result, err := tool.Run(ctx, call)
	failure := err
	if _, asks := errors.AsType[*sdk.ToolSuspended](err); asks {
		failure = nil // a tool that asks a person has not failed
	}
	o.metrics.tool(ctx, call.Tool, began, failure)
	switch {
	case span == nil:
	case failure != nil:
		o.failed(span, failure)
	case err != nil:
		span.SetAttributes(keyCallStatus.String(string(core.CallSuspended)))
	case o.content:
		span.SetAttributes(keyOutput.String(shown(string(result))), keyOutputMime.String(mimeJSON), keyToolResult.String(shown(string(result))))
	}
	return result, err
}

var keyToolTypeFunction = attribute.String("gen_ai.tool.type", "function")

func toolAttributes(tool, call, run string) []attribute.KeyValue {
	return []attribute.KeyValue{
		keyKind.String(kindTool), keyToolName.String(tool), keyToolCall.String(call), keySession.String(run),
		keyOperation.String(operationTool), keyTool.String(tool), keyToolCallID.String(call), keyConversation.String(run),
	}
}

func (t *Telemetry) arguments(args json.RawMessage) []attribute.KeyValue {
	text := shown(string(args))
	return []attribute.KeyValue{keyInput.String(text), keyInputMime.String(mimeJSON), keyToolArgs.String(text)}
}

// settlements are how a message was settled, in words.
var settlements = map[runner.Settlement]string{
	runner.Ack: "ack", runner.Retry: "retry", runner.Leave: "leave", runner.Reject: "reject",
}

// End implements runner.Observer.
func (o observer) End(ctx context.Context, v runner.Verdict, err error) {
	a := activationOf(ctx)
	o.metrics.busy.Add(ctx, -1)
	settled := settlements[v.Settlement]
	o.metrics.activation.Record(ctx, time.Since(a.began).Seconds(), metric.WithAttributes(
		keyAgent.String(a.agent), keyMessageFor.String(string(a.message.Address.Kind)), keySettlement.String(settled)))
	if a.span == nil && o.tracing() {
		o.open(ctx, a, &core.Head{})
	}
	if a.span == nil {
		return
	}
	a.span.SetAttributes(keySettlement.String(settled))
	switch {
	case err != nil:
		o.failed(a.span, err)
	case v.Problem != nil:
		o.failed(a.span, v.Problem)
	}
	a.span.End()
}

package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"agentd/sdk"
)

// Models shows the calls of the models that models returns.
func (t *Telemetry) Models(models func(sdk.ModelSpec) (sdk.Provider, error)) func(sdk.ModelSpec) (sdk.Provider, error) {
	if t == nil {
		return models
	}
	return func(spec sdk.ModelSpec) (sdk.Provider, error) {
		p, err := models(spec)
		if err != nil {
			return nil, err
		}
		return model{t, p, cmp.Or(spec.Provider, providerUnknown)}, nil
	}
}

type model struct {
	*Telemetry
	sdk.Provider
	name string
}

// Generate implements sdk.Provider. What its retries do is inside of the one span.
func (m model) Generate(ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	began := time.Now()
	var span trace.Span
	if m.tracing() {
		ctx, span = m.tracer.Start(within(ctx), operationChat+" "+req.Model,
			trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(m.asked(req)...))
		defer span.End()
		span.AddEvent("api_call_start", trace.WithAttributes(append(limits(req),
			attribute.Int("agentd.interactions.current", req.Interactions.Current),
			attribute.Int("agentd.interactions.max", req.Interactions.Max))...))
	}
	reply, err := m.Provider.Generate(ctx, req, onDelta)
	m.metrics.generated(ctx, m.name, req.Model, reply, began, err)
	switch {
	case span == nil:
	case err != nil:
		m.failed(span, err)
	default:
		span.SetAttributes(m.answered(req, reply)...)
	}
	return reply, err
}

// limits are those that the request sets.
func limits(req sdk.ModelRequest) []attribute.KeyValue {
	if req.MaxTokens == 0 {
		return nil
	}
	return []attribute.KeyValue{keyMaxTokens.Int(req.MaxTokens)}
}

func (m model) asked(req sdk.ModelRequest) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		keyKind.String(kindLLM), keyLLMModel.String(req.Model), keyLLMProvider.String(m.name), keySession.String(req.Run),
		keyOperation.String(operationChat), keyProvider.String(m.name), keyRequestModel.String(req.Model),
		keyConversation.String(req.Run), attribute.String("agentd.lifecycle", string(req.Lifecycle)),
	}
	attributes = append(attributes, limits(req)...)
	if req.Temperature != nil {
		attributes = append(attributes, keyTemperature.Float64(*req.Temperature))
	}
	if req.TopP != nil {
		attributes = append(attributes, keyTopP.Float64(*req.TopP))
	}
	if m.content {
		messages := encoded(req.Messages)
		attributes = append(attributes, keyInput.String(messages), keyInputMime.String(mimeJSON), keyMessagesIn.String(messages),
			attribute.String("gen_ai.system_instructions", shown(req.System)))
	}
	return attributes
}

func (m model) answered(req sdk.ModelRequest, reply sdk.ModelReply) []attribute.KeyValue {
	finish := "stop"
	switch {
	case reply.Truncated:
		finish = "length"
	case len(reply.Calls) > 0:
		finish = "tool_calls"
	}
	attributes := []attribute.KeyValue{
		keyResponseModel.String(cmp.Or(reply.Model, req.Model)), keyFinish.StringSlice([]string{finish}),
		keyInputTokens.Int64(reply.Usage.Prompt), keyOutputTokens.Int64(reply.Usage.Completion),
		keyLLMPrompt.Int64(reply.Usage.Prompt), keyLLMReply.Int64(reply.Usage.Completion),
		keyLLMTotal.Int64(reply.Usage.Prompt + reply.Usage.Completion),
	}
	if m.content {
		output := encoded(struct {
			Text  string            `json:"text,omitempty"`
			Calls []sdk.ToolRequest `json:"calls,omitempty"`
		}{reply.Text, reply.Calls})
		attributes = append(attributes, keyOutput.String(output), keyOutputMime.String(mimeJSON), keyMessagesOut.String(output))
	}
	return attributes
}

func encoded(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "" // what came by JSON always encodes
	}
	return shown(string(data))
}

// generated measures a model call.
func (i *instruments) generated(ctx context.Context, provider, asked string, reply sdk.ModelReply, began time.Time, err error) {
	common := []attribute.KeyValue{
		keyOperation.String(operationChat), keyProvider.String(provider), keyRequestModel.String(asked),
	}
	if err != nil {
		i.model.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(append(common, keyError.String(errorType(err)))...))
		return
	}
	common = append(common, keyResponseModel.String(cmp.Or(reply.Model, asked)))
	i.model.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(common...))
	input := append(common[:len(common):len(common)], keyTokenType.String("input"))
	output := append(common[:len(common):len(common)], keyTokenType.String("output"))
	i.tokens.Record(ctx, reply.Usage.Prompt, metric.WithAttributes(input...))
	i.tokens.Record(ctx, reply.Usage.Completion, metric.WithAttributes(output...))
}

// tool measures the run of an inline tool.
func (i *instruments) tool(ctx context.Context, name string, began time.Time, err error) {
	attributes := []attribute.KeyValue{keyTool.String(name)}
	if err != nil {
		attributes = append(attributes, keyError.String(errorType(err)))
	}
	i.tools.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(attributes...))
}

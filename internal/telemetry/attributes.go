package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"agentd/internal/clip"
	"agentd/sdk"
)

// Attributes of OpenInference.
const (
	keyKind         = attribute.Key("openinference.span.kind")
	keySession      = attribute.Key("session.id")
	keyInput        = attribute.Key("input.value")
	keyInputMime    = attribute.Key("input.mime_type")
	keyOutput       = attribute.Key("output.value")
	keyOutputMime   = attribute.Key("output.mime_type")
	keyLLMModel     = attribute.Key("llm.model_name")
	keyLLMProvider  = attribute.Key("llm.provider")
	keyLLMPrompt    = attribute.Key("llm.token_count.prompt")
	keyLLMReply     = attribute.Key("llm.token_count.completion")
	keyLLMTotal     = attribute.Key("llm.token_count.total")
	keyToolName     = attribute.Key("tool.name")
	keyToolCall     = attribute.Key("tool.id")
	keyOIAgent      = attribute.Key("agent.name")
	mimeJSON        = "application/json"
	kindAgent       = "AGENT"
	kindLLM         = "LLM"
	kindTool        = "TOOL"
	kindChain       = "CHAIN"
	providerUnknown = "unknown"
)

// Attributes of the GenAI conventions, which live in a repository of their own and have no Go package.
const (
	keyOperation     = attribute.Key("gen_ai.operation.name")
	keyAgent         = attribute.Key("gen_ai.agent.name")
	keyConversation  = attribute.Key("gen_ai.conversation.id")
	keyProvider      = attribute.Key("gen_ai.provider.name")
	keyRequestModel  = attribute.Key("gen_ai.request.model")
	keyMaxTokens     = attribute.Key("gen_ai.request.max_tokens")
	keyTemperature   = attribute.Key("gen_ai.request.temperature")
	keyTopP          = attribute.Key("gen_ai.request.top_p")
	keyResponseModel = attribute.Key("gen_ai.response.model")
	keyFinish        = attribute.Key("gen_ai.response.finish_reasons")
	keyInputTokens   = attribute.Key("gen_ai.usage.input_tokens")
	keyOutputTokens  = attribute.Key("gen_ai.usage.output_tokens")
	keyPart          = attribute.Key("agentd.prompt.part")
	keyTokenType     = attribute.Key("gen_ai.token.type")
	keyTool          = attribute.Key("gen_ai.tool.name")
	keyToolCallID    = attribute.Key("gen_ai.tool.call.id")
	keyToolArgs      = attribute.Key("gen_ai.tool.call.arguments")
	keyToolResult    = attribute.Key("gen_ai.tool.call.result")
	keyMessagesIn    = attribute.Key("gen_ai.input.messages")
	keyMessagesOut   = attribute.Key("gen_ai.output.messages")

	operationAgent = "invoke_agent"
	operationChat  = "chat"
	operationTool  = "execute_tool"
)

// Attributes of messaging and errors.
const (
	keySystem        = attribute.Key("messaging.system")
	keyMessagingOp   = attribute.Key("messaging.operation.name")
	keyMessagingType = attribute.Key("messaging.operation.type")
	keyDestination   = attribute.Key("messaging.destination.name")
	keyConsumer      = attribute.Key("messaging.consumer.group.name")
	keyMessage       = attribute.Key("messaging.message.id")
	keyError         = attribute.Key("error.type")
	systemNATS       = "nats"
)

// Attributes of agentd's own.
const (
	keyRun        = attribute.Key("agentd.run.id")
	keyStatus     = attribute.Key("agentd.run.status")
	keyCallStatus = attribute.Key("agentd.call.status")
	keyReason     = attribute.Key("agentd.run.reason")
	keyParkedWhy  = attribute.Key("agentd.run.parked.why")
	keySettlement = attribute.Key("agentd.settlement")
	keyMessageFor = attribute.Key("agentd.message.kind")
	keySequence   = attribute.Key("agentd.stream.sequence")
	keyRound      = attribute.Key("agentd.run.round")
	keyCall       = attribute.Key("agentd.call.id")
	keyType       = attribute.Key("agentd.call.type")
	keyGuard      = attribute.Key("agentd.guard")
	keyJudge      = attribute.Key("agentd.judge")
	keyAccepted   = attribute.Key("agentd.judge.accepted")
	keyChosenBy   = attribute.Key("agentd.tools.chosen_by")
	keyDegraded   = attribute.Key("agentd.tools.degraded")
	keyTakeovers  = attribute.Key("agentd.takeovers")
	keyStore      = attribute.Key("agentd.store.name")
	keyStoreOp    = attribute.Key("agentd.store.operation")
	keyOutcome    = attribute.Key("agentd.outcome")
)

// outcomes of operations.
const (
	outcomeOK       = "ok"
	outcomeConflict = "conflict"
	outcomeError    = "error"
)

// errorType is what went wrong in one of a few words.
func errorType(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code != "" {
		return string(e.Code)
	}
	return "_OTHER"
}

// failed marks a span. The text of an error may quote contents, so it is shown with them only.
func (t *Telemetry) failed(span trace.Span, err error) {
	kind := errorType(err)
	span.SetAttributes(keyError.String(kind))
	text := kind
	if t.content {
		text = Redact(err.Error())
	}
	span.SetStatus(codes.Error, text)
}

// shown is a content as it may be recorded: redacted and of bounded length. What is redacted reaches further than what is shown, because a
// secret that is cut may be one no longer by its form.
func shown(content string) string {
	const most, secret = 32 << 10, 4 << 10
	return clip.Text(Redact(clip.Text(content, most+secret)), most)
}

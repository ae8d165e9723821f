package config

import (
	"time"

	"agentd/internal/config/strict"
)

type (
	words    = strict.Value[string]
	number   = strict.Value[int]
	duration = strict.Value[time.Duration]
)

// file is the form of agentd.yaml.
type file struct {
	NATS struct {
		URL      words  `yaml:"url"`
		Creds    words  `yaml:"creds"`
		NKey     words  `yaml:"nkey"`
		CA       words  `yaml:"ca"`
		Cert     words  `yaml:"cert"`
		Key      words  `yaml:"key"`
		Root     words  `yaml:"root"`
		Replicas number `yaml:"replicas"`
	} `yaml:"nats"`
	Redis struct {
		URL  words `yaml:"url"`
		CA   words `yaml:"ca"`
		Cert words `yaml:"cert"`
		Key  words `yaml:"key"`
	} `yaml:"redis"`
	Store words  `yaml:"store"`
	Data  words  `yaml:"data"`
	Slots number `yaml:"slots"`
	Log   struct {
		Level  words `yaml:"level"`
		Format words `yaml:"format"`
	} `yaml:"log"`
	Reconcile struct {
		Interval  words    `yaml:"interval"`
		OlderThan duration `yaml:"older_than"`
	} `yaml:"reconcile"`
	Retention struct {
		History words `yaml:"history"`
	} `yaml:"retention"`
	Encryption *encryptionFile              `yaml:"encryption"`
	Models     strict.Entries[providerFile] `yaml:"models"`
	Contracts  []words                      `yaml:"contracts"`
	// Domains are the routing lanes that calls and permission requests may name, beside those of contracts.
	Domains []words `yaml:"domains"`
	// Identity is "optional" or "required"; DecisionKeys are the keys of approvers by domain.
	Identity     words                   `yaml:"identity"`
	DecisionKeys strict.Entries[[]words] `yaml:"decision_keys"`
	Approvals    *approvalsFile          `yaml:"approvals"`
	MCP          mcpFile                 `yaml:"mcp"`
	Agents       []agentFile             `yaml:"agents"`
}

type encryptionFile struct {
	At             strict.Position
	Current        words                       `yaml:"current"`
	Keys           strict.Entries[strict.Node] `yaml:"keys"`
	AllowPlaintext strict.Value[bool]          `yaml:"allow_plaintext"`
}

// keyFile says where a key is; the key itself is never in the file.
type keyFile struct {
	Env  words `yaml:"env"`
	File words `yaml:"file"`
}

type providerFile struct {
	// Protocol is "openai" or "anthropic".
	Protocol     words `yaml:"protocol"`
	BaseURL      words `yaml:"base_url"`
	Organization words `yaml:"organization"`
	APIKeyEnv    words `yaml:"api_key_env"`
}

type agentFile struct {
	At          strict.Position
	Name        words `yaml:"name"`
	Description words `yaml:"description"`
	// Contract is a path, the type of a contract that was read, or a mapping with accepts and emits.
	Contract strict.Node `yaml:"contract"`
	Version  words       `yaml:"version"`
	Model    *modelFile  `yaml:"model"`
	// System and Prompt are text, or the path of a file of text.
	System words `yaml:"system"`
	Prompt words `yaml:"prompt"`
	Text   words `yaml:"text"`
	// Guidance are sections after the system prompt: text, or the path of a file of text.
	Guidance struct {
		Loop         words `yaml:"loop"`
		Capabilities words `yaml:"capabilities"`
		Thinking     words `yaml:"thinking"`
	} `yaml:"guidance"`
	// Context are services that are asked for sections of the prompt.
	Context struct {
		Planning  *contextFile `yaml:"planning"`
		Retrieval *contextFile `yaml:"retrieval"`
	} `yaml:"context"`
	Memory struct {
		Window  number             `yaml:"window"`
		Compact strict.Value[bool] `yaml:"compact"`
	} `yaml:"memory"`
	Tools struct {
		Services []serviceFile `yaml:"services"`
		MCP      []words       `yaml:"mcp"`
		Builtin  []words       `yaml:"builtin"`
	} `yaml:"tools"`
	Permissions *permissionsFile `yaml:"permissions"`
	OnStateLoss words            `yaml:"on_state_loss"`
	StopOn      []words          `yaml:"stop_on"`
	// Stop has all conditions that a run ends by, also those that limits and stop_on have.
	Stop       *stopFile       `yaml:"stop"`
	NoToolCall *noToolCallFile `yaml:"no_tool_call"`
	Steering   words           `yaml:"steering"`
	Order      words           `yaml:"order"`
	Decisions  words           `yaml:"decisions"`
	// Hooks are rules without code.
	Hooks   []hookFile         `yaml:"hooks"`
	History strict.Value[bool] `yaml:"history"`
	Limits  struct {
		Interactions    number   `yaml:"interactions"`
		Tokens          number   `yaml:"tokens"`
		Deadline        duration `yaml:"deadline"`
		ModelTimeout    duration `yaml:"model_timeout"`
		QuestionTimeout duration `yaml:"question_timeout"`
	} `yaml:"limits"`
}

type stopFile struct {
	Interactions number   `yaml:"interactions"`
	Tokens       number   `yaml:"tokens"`
	Deadline     duration `yaml:"deadline"`
	Errors       number   `yaml:"errors"`
	SameError    number   `yaml:"same_error"`
	Loop         struct {
		Repeats number `yaml:"repeats"`
		Window  number `yaml:"window"`
	} `yaml:"loop"`
	Tools []words `yaml:"tools"`
	Text  []words `yaml:"text"`
}

type noToolCallFile struct {
	Policy    words  `yaml:"policy"`
	Reminders number `yaml:"reminders"`
	Text      words  `yaml:"text"`
}

type hookFile struct {
	At        strict.Position
	Name      words              `yaml:"name"`
	When      words              `yaml:"when"`
	Message   words              `yaml:"message"`
	Keep      strict.Value[bool] `yaml:"keep"`
	Only      []words            `yaml:"only"`
	Hide      []words            `yaml:"hide"`
	Terminate words              `yaml:"terminate"`
}

// contractFile is an agent's contract written in its place.
type contractFile struct {
	Accepts strict.JSON `yaml:"accepts"`
	Emits   strict.JSON `yaml:"emits"`
}

type modelFile struct {
	At          strict.Position
	Provider    words                 `yaml:"provider"`
	Name        words                 `yaml:"name"`
	Temperature strict.Value[float64] `yaml:"temperature"`
	MaxTokens   number                `yaml:"max_tokens"`
	// MaxBytes is of a response, after decompression.
	MaxBytes number `yaml:"max_bytes"`
	// ToolCalls is "native" or "text".
	ToolCalls words `yaml:"tool_calls"`
	// Thinking is "adaptive" or a number of tokens.
	Thinking words `yaml:"thinking"`
	// On are the kinds of failure that a fallback is asked after.
	On []words `yaml:"on"`
	// Prices are execution units a token, to six decimal places.
	UnitsPerPromptToken     words       `yaml:"units_per_prompt_token"`
	UnitsPerCompletionToken words       `yaml:"units_per_completion_token"`
	Fallback                []modelFile `yaml:"fallback"`
}

type serviceFile struct {
	At strict.Position
	// Contract is a path; or the type or URI of a contract that was read, which may be that of an agent; or else of one in
	// the registry.
	Contract    words  `yaml:"contract"`
	Version     words  `yaml:"version"`
	As          words  `yaml:"as"`
	Description words  `yaml:"description"`
	Priority    number `yaml:"priority"`
	// Agent says that an agent answers, as agentd knows of those in the same file; Tokens bounds one call of it.
	Agent   strict.Value[bool] `yaml:"agent"`
	Tokens  number             `yaml:"tokens"`
	Timeout duration           `yaml:"timeout"`
	Retry   retryFile          `yaml:"retry"`
	Domain  words              `yaml:"domain"`
	Domains []words            `yaml:"domains"`
}

type retryFile struct {
	Attempts   number   `yaml:"attempts"`
	Backoff    duration `yaml:"backoff"`
	MaxBackoff duration `yaml:"max_backoff"`
}

// contextFile is a service that is asked for a section of the prompt; what it shares with serviceFile means the same.
type contextFile struct {
	At        strict.Position
	Contract  words              `yaml:"contract"`
	Version   words              `yaml:"version"`
	Ask       words              `yaml:"ask"`
	OnFailure words              `yaml:"on_failure"`
	Agent     strict.Value[bool] `yaml:"agent"`
	Tokens    number             `yaml:"tokens"`
	Timeout   duration           `yaml:"timeout"`
	Retry     retryFile          `yaml:"retry"`
	Domain    words              `yaml:"domain"`
	Domains   []words            `yaml:"domains"`
}

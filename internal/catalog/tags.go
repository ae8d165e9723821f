package catalog

import (
	"encoding/json"
	"maps"
	"slices"

	"agentd/internal/expression"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Variables of conditions and tags: the agent's name, the run's, and what the run was started with.
const (
	variableAgent = "agent"
	variableInput = "input"
	variableRun   = "run"
)

// tagsOf says by which tags people find a run of the agent, of its input and who started it; nil is none. What cannot be a tag is left out.
func tagsOf(spec sdk.AgentSpec) (func(input json.RawMessage, run, initiator string) map[string]string, error) {
	if len(spec.Tags) == 0 {
		return nil, nil
	}
	if len(spec.Tags) > wire.MaxTags {
		return nil, sdk.Errorf(sdk.CodeConfig, "tags: want at most %d, got %d", wire.MaxTags, len(spec.Tags))
	}
	values := map[string]func(map[string]any) (string, bool){}
	for _, key := range slices.Sorted(maps.Keys(spec.Tags)) {
		if err := wire.CheckTagKey(key); err != nil {
			return nil, sdk.Errorf(sdk.CodeConfig, "tags: %s", sdk.AsError(err).Message)
		}
		var err error
		if values[key], err = expression.CompileTag(spec.Tags[key]); err != nil {
			return nil, sdk.Errorf(sdk.CodeConfig, "tags.%s: %s", key, sdk.AsError(err).Message)
		}
	}
	return func(input json.RawMessage, run, initiator string) map[string]string {
		var decoded any
		if json.Unmarshal(input, &decoded) != nil {
			return nil
		}
		tags := map[string]string{}
		for key, value := range values {
			text, ok := value(map[string]any{variableInput: decoded, variableRun: run, variableAgent: spec.Name, "initiator": initiator})
			if ok && wire.CheckTags(map[string]string{key: text}) == nil {
				tags[key] = text
			}
		}
		return tags
	}, nil
}

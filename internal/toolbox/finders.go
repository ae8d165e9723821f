package toolbox

import (
	"encoding/json"
	"fmt"

	"agentd/sdk"
)

// CategoryPrefix begins the names of the tools that open categories.
const CategoryPrefix = "category_"

// addFinders adds the tools that find others, where the agent offers some of its tools.
func (b *Toolbox) addFinders(spec sdk.AgentSpec, owners map[string]string) error {
	if !spec.Selection.Selects(len(b.tools)) {
		return nil
	}
	finders := []finder{{sdk.ToolFindTools, findDescription, findParameters, nil}}
	for i := range spec.Selection.Categories {
		c := &spec.Selection.Categories[i]
		finders = append(finders, finder{Name(CategoryPrefix + c.Name), c.Description + "\n\n" + categoryDescription, categoryParameters, c})
	}
	for _, f := range finders {
		if other, taken := owners[f.name]; taken {
			return &sdk.Error{Code: sdk.CodeConfig, Faults: []sdk.Fault{{
				Path: "$.selection", Expected: "a tool name of its own", Got: fmt.Sprintf("%q for %s and a tool that finds others", f.name, other),
			}}}
		}
		owners[f.name] = "a tool that finds others"
		t, err := newTool(&Tool{
			Name: f.name, Kind: Builtin, Timeout: sdk.DefaultToolTimeout, Finds: true, Category: f.category,
			Definition: sdk.ToolDefinition{Description: f.description},
		}, json.RawMessage(f.parameters))
		if err != nil {
			return err
		}
		b.tools, b.byName[t.Name] = append(b.tools, t), t
	}
	return nil
}

// finder is a tool that finds others.
type finder struct {
	name, description, parameters string
	category                      *sdk.ToolCategory
}

const (
	findDescription = "Look for tools that you are not offered. Say what you want to do, in a few words: you can call the tools that are " +
		"found from your next reply on. Try this before you say that something cannot be done."
	findParameters = `{
  "type": "object",
  "properties": {
    "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "What you want to do."}
  },
  "required": ["query"],
  "additionalProperties": false
}`
	categoryDescription = "This opens the category: you can call its tools from your next reply on. Open as many categories as you need."
	categoryParameters  = `{
  "type": "object",
  "properties": {
    "intent": {"type": "string", "maxLength": 1000, "description": "What you want to do with its tools."}
  },
  "additionalProperties": false
}`
)

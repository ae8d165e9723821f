package contracts

const planDescription = "Write down your plan, or change it. You are shown it before every reply. Give all of it each time: the " +
	"goal, every step with what came of it, and the step that you work on."

// planParameters are bounded, because the plan is part of every prompt.
const planParameters = `{
  "type": "object",
  "properties": {
    "goal": {"type": "string", "minLength": 1, "maxLength": 1000},
    "steps": {
      "type": "array", "minItems": 1, "maxItems": 32,
      "items": {
        "type": "object",
        "properties": {
          "description": {"type": "string", "minLength": 1, "maxLength": 500},
          "completed": {"type": "boolean"},
          "result": {"type": "string", "maxLength": 500, "description": "What came of it."}
        },
        "required": ["description"],
        "additionalProperties": false
      }
    },
    "current": {"type": "integer", "minimum": 1, "maximum": 32, "description": "The number of the step that you work on, from 1."}
  },
  "required": ["goal", "steps"],
  "additionalProperties": false
}`

package prompt

import "agentd/sdk"

const summaryRules = `You keep the memory of an agent. Summarise the conversation below as the agent would remember it, in the first
person and in few words: what is asked for, what was decided and found out with names, numbers and ids exactly as they
are, what was tried in vain, and what is still to be done. Keep what an earlier summary says. Reply with the summary
alone.`

// Summary asks for a summary of messages, which are put down as text: a model must not go on with them.
func Summary(messages []sdk.Message) (system string, asked []sdk.Message) {
	text := ""
	for _, m := range messages {
		for _, c := range m.Content {
			switch c.Kind {
			case sdk.ContentText:
				text += string(m.Role) + ": " + c.Text + "\n"
			case sdk.ContentToolUse:
				text += "call of " + c.Tool + ": " + string(c.Args) + "\n"
			case sdk.ContentToolResult:
				text += "result of " + c.Tool + ": " + c.Text + "\n"
			case sdk.ContentMedia:
				text += string(m.Role) + ": [media]\n"
			case sdk.ContentThinking, sdk.ContentRedacted:
			}
		}
	}
	return summaryRules, []sdk.Message{sdk.Text(sdk.RoleUser, text)}
}

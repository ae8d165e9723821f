package prompt

import (
	"fmt"
	"strings"

	"agentd/sdk"
)

// What is left of a result in a conversation that is to be summarised. A table of a megabyte must not be what the summary
// is of, nor take the place of what else was said.
const (
	mostResultTokens  = 2048
	previewCharacters = 1600
	previewLines      = 24
)

// Preview is text, or the beginning of a text that is too long, with how long it is.
func Preview(text string) string {
	if Tokens(text) <= mostResultTokens {
		return text
	}
	head, characters := text, 0
	for at := range text {
		if characters == previewCharacters {
			head = text[:at]
			break
		}
		characters++
	}
	if lines := strings.SplitAfterN(head, "\n", previewLines+1); len(lines) > previewLines {
		head = strings.TrimSuffix(strings.Join(lines[:previewLines], ""), "\n")
	}
	return fmt.Sprintf("%s… (the beginning of %d bytes)", head, len(text))
}

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
				text += "result of " + c.Tool + ": " + Preview(c.Text) + "\n"
			case sdk.ContentMedia:
				text += string(m.Role) + ": [media]\n"
			case sdk.ContentThinking, sdk.ContentRedacted:
			}
		}
	}
	return summaryRules, []sdk.Message{sdk.Text(sdk.RoleUser, text)}
}

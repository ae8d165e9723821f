package prompt

import (
	"slices"
	"unicode/utf8"

	"agentd/sdk"
)

// What an estimate adds to the text: for each message, and for each call or result.
const (
	tokensPerMessage = 4
	tokensPerCall    = 10
)

// Tokens estimates how many tokens a text has, rather too many than too few: 16 characters of ASCII are taken for 5
// tokens, and any other character for one, whatever the model.
func Tokens(text string) int {
	runes := utf8.RuneCountInString(text)
	ascii := 0
	for i := range len(text) {
		if text[i] < utf8.RuneSelf {
			ascii++
		}
	}
	return (ascii*5+15)/16 + runes - ascii
}

// Message counts a message. Media count as what vendors charge for an image of usual size.
func (count Counter) Message(m sdk.Message) int {
	const media = 1500
	n := tokensPerMessage
	for _, c := range m.Content {
		n += count(c.Text) + count(string(c.Args))
		switch {
		case c.CallID != "":
			n += tokensPerCall
		case c.Media != nil && m.Seen == 0:
			n += media
		}
	}
	return n
}

// Tools counts what the definitions of tools take.
func (count Counter) Tools(tools []sdk.ToolDefinition) int {
	n := 0
	for _, t := range tools {
		n += tokensPerCall + count(t.Name) + count(t.Description) + count(string(t.Parameters))
	}
	return n
}

// Prune leaves out the oldest messages until the rest fits the budget. What is kept is the newest, and begins where a
// conversation may: no call is kept without its results, and no result without its call. The newest such piece is kept
// also when it does not fit. The system prompt is not a message, so it always stays.
func (count Counter) Prune(messages []sdk.Message, budget int) []sdk.Message {
	keep, total := len(messages), 0
	for i := len(messages) - 1; i >= 0; i-- {
		total += count.Message(messages[i])
		if total > budget && keep < len(messages) {
			break
		}
		if Frontier(messages, i) {
			keep = i
		}
	}
	if keep == len(messages) {
		return messages
	}
	return messages[keep:]
}

// Frontier reports whether messages may be cut before i: neither is i the result of an earlier call, nor does a call
// before it wait for one.
func Frontier(messages []sdk.Message, i int) bool {
	return !slices.ContainsFunc(messages[i].Content, func(c sdk.Content) bool { return c.Kind == sdk.ContentToolResult })
}

// Over reports whether messages have more tokens than budget. It counts no more of them than that takes.
func (count Counter) Over(messages []sdk.Message, budget int) bool {
	total := 0
	for i := len(messages) - 1; i >= 0 && total <= budget; i-- {
		total += count.Message(messages[i])
	}
	return total > budget
}

// Older is how many of the oldest messages make up about half of all, as they are estimated; 0 when it cannot be cut.
// The newest message is never among them.
func Older(messages []sdk.Message) int {
	estimate := Counter(Tokens)
	all := 0
	for _, m := range messages {
		all += estimate.Message(m)
	}
	total, older := 0, 0
	for i := range messages {
		if i > 1 && Frontier(messages, i) {
			older = i
			if 2*total >= all {
				break
			}
		}
		total += estimate.Message(messages[i])
	}
	return older
}

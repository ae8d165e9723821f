package core

import "agentd/sdk"

// showMedia appends the media of a round's results to the history: after all results, which vendors want right after the calls.
func (t *transition) showMedia(calls []Call) {
	for i := range calls {
		c := &calls[i]
		if !c.ofModel() || c.Media == 0 {
			continue
		}
		content := []sdk.Content{{Kind: sdk.ContentText, Text: c.Tool + " returned:"}}
		t.Messages = append(t.Messages, sdk.Message{Role: sdk.RoleUser, Content: append(content, mediaOf(c)...)})
	}
}

func mediaOf(c *Call) []sdk.Content {
	content := make([]sdk.Content, c.Media)
	for i := range content {
		content[i] = sdk.Content{Kind: sdk.ContentMedia, CallID: c.ID}
	}
	return content
}

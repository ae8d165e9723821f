package core

import (
	"agentd/sdk"
)

// What a run takes from a model, a tool or a person is bounded, so that nothing is decided that could not be stored or
// published afterwards. Sizes are in bytes.
const (
	// MaxRound is how many calls of one reply are made. As many again are refused, which the model sees; further ones are
	// dropped.
	MaxRound = 64
	// MaxArguments is the size of a call's arguments, and of what is said to a person in one turn.
	MaxArguments = 256 << 10
	// MaxReply is the size of a model's reply: text, names and arguments together. No model writes as much.
	MaxReply = 2 << 20
	// MaxResult is the size of an inline tool's result. That of a service is bounded by the broker.
	MaxResult = 16 << 20
	// LargeResult is the size above which an inline tool's result is kept as a blob, of which the conversation has the two ends.
	LargeResult = 256 << 10
	// MaxHistory is the size of a conversation, media included. It is more than any model reads.
	MaxHistory = 16 << 20

	// maxToolName is the longest name of a tool that is repeated; those of real tools are shorter.
	maxToolName = 128
	// maxToolNames is about how long the list of tools is that a model is told which named none of them.
	maxToolNames = 2 << 10
	// maxDropped is how many names of dropped calls an entry lists.
	maxDropped = 128
	// maxMessage is the longest text of an ending, which is part of the head.
	maxMessage = 4 << 10
	// maxPattern and maxGrantReason bound a grant: MaxGrants of them are part of the head.
	maxPattern     = 512
	maxGrantReason = 256
	// maxQuoted is what the history keeps of something that was refused for its size.
	maxQuoted = 1 << 10
)

// CheckReply returns CodeTooLarge for a reply that is too large to be part of a conversation.
func CheckReply(r *sdk.ModelReply) error {
	size := len(r.Text)
	for _, c := range r.Thinking {
		size += len(c.Text) + len(c.Signature)
	}
	for _, c := range r.Calls {
		size += len(c.Name) + len(c.Arguments)
	}
	if size > MaxReply {
		return sdk.Errorf(sdk.CodeTooLarge, "the model's reply has %d bytes, more than %d", size, MaxReply)
	}
	return nil
}

// Size is how many bytes the conversation has, its images and sounds included.
func (s *State) Size() int {
	for i := s.sized.messages; i < len(s.History); i++ {
		for _, c := range s.History[i].Content {
			s.sized.bytes += len(c.Text) + len(c.Args) + len(c.Signature)
			if c.Media != nil {
				s.sized.bytes += len(c.Media.Data)
			}
		}
	}
	s.sized.messages = len(s.History)
	return len(s.System) + s.sized.bytes
}

// sized is how many bytes the first messages of a history have. It is measured once for each message.
type sized struct{ messages, bytes int }

// CheckHistory returns CodeTooLarge when the conversation is too large to go on.
func CheckHistory(s *State) error {
	if size := s.Size(); size > MaxHistory {
		return sdk.Errorf(sdk.CodeTooLarge, "the conversation has %d bytes, more than %d", size, MaxHistory)
	}
	return nil
}

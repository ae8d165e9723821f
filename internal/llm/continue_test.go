package llm_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/llm"
	"agentd/sdk"
)

// cutting gives replies of one word each, which a limit of length cuts but for the last.
type cutting struct {
	words []string
	asked []sdk.ModelRequest
	// reset says that each reply after the first is made in two attempts.
	reset bool
}

func (c *cutting) Generate(_ context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	word := c.words[len(c.asked)]
	c.asked = append(c.asked, req)
	if onDelta != nil {
		onDelta(sdk.Delta{Text: word})
		if c.reset && len(c.asked) > 1 {
			onDelta(sdk.Delta{Reset: true})
			onDelta(sdk.Delta{Text: word})
		}
	}
	return sdk.ModelReply{
		Text: word, Units: 1, Usage: sdk.Usage{Prompt: 10, Completion: 2}, Estimated: len(c.asked) == 1, Truncated: len(c.asked) < len(c.words),
	}, nil
}

func TestContinuing_MakesOneReplyOfItsParts(t *testing.T) {
	t.Parallel()
	model := &cutting{words: []string{"Once ", "upon ", "a time"}, reset: true}
	req := hello()
	req.Output = []byte(`{"type": "object"}`)
	live := ""
	reply, err := llm.Continuing(model).Generate(t.Context(), req, func(d sdk.Delta) {
		if d.Reset {
			live = ""
		}
		live += d.Text
	})
	want := sdk.ModelReply{Text: "Once upon a time", Units: 3, Usage: sdk.Usage{Prompt: 30, Completion: 6}, Estimated: true}
	if diff := cmp.Diff(want, reply); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if live != want.Text {
		t.Errorf("live: %q", live)
	}
	last := model.asked[2]
	said := last.Messages[len(last.Messages)-2]
	if said.Role != sdk.RoleAssistant || said.PlainText() != "Once upon " || last.Output != nil || len(last.Messages) != len(req.Messages)+2 {
		t.Errorf("the last request is %+v", last)
	}
}

func TestContinuing_Ends(t *testing.T) {
	t.Parallel()
	words := strings.SplitAfter("one two three four five", " ")
	for name, tc := range map[string]struct {
		tokens int64
		want   string
	}{
		"after three more":            {want: "one two three four "},
		"when the tokens are used up": {tokens: 20, want: "one two "},
	} {
		req := hello()
		req.Tokens = tc.tokens
		reply, err := llm.Continuing(&cutting{words: words}).Generate(t.Context(), req, nil)
		if err != nil || reply.Text != tc.want || !reply.Truncated {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
	}
}

func TestRegistry_GoesOnWithABrokenReply(t *testing.T) {
	t.Parallel()
	broken := func(deltas ...sdk.Delta) step { return step{deltas: deltas, err: errUnavailable} }
	for name, tc := range map[string]struct {
		steps  []step
		text   string
		asked  int
		pauses int
	}{
		"twice": {[]step{
			broken(sdk.Delta{Text: "one "}), broken(sdk.Delta{Text: "two "}), {reply: "three"},
		}, "one two three", 3, 0},
		"then from the start": {[]step{
			broken(sdk.Delta{Text: "one "}), broken(sdk.Delta{Text: "two "}), broken(sdk.Delta{Text: "three "}), {reply: "anew"},
		}, "anew", 4, 1},
		"without progress":    {[]step{broken(sdk.Delta{Text: "one "}), broken(), {reply: "anew"}}, "anew", 3, 1},
		"with a call in it":   {[]step{broken(sdk.Delta{Text: "I look."}, sdk.Delta{Tool: "find"}), {reply: "anew"}}, "anew", 2, 1},
		"another failure":     {[]step{{deltas: []sdk.Delta{{Text: "one "}}, err: errLimited}, {reply: "anew"}}, "anew", 2, 1},
		"before there is any": {[]step{broken(), {reply: "anew"}}, "anew", 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, clock := &scripted{steps: tc.steps}, &pauses{}
			registry, err := llm.New(llm.Config{Custom: map[string]sdk.Provider{"a": model}, Retry: clock.options()})
			if err != nil {
				t.Fatal(err)
			}
			p, err := registry.Provider(sdk.ModelSpec{Provider: "a", Name: "m"})
			if err != nil {
				t.Fatal(err)
			}
			reply, err := p.Generate(t.Context(), hello(), func(sdk.Delta) {})
			if err != nil || reply.Text != tc.text || len(model.asked) != tc.asked || len(clock.slept) != tc.pauses {
				t.Errorf("%q after %d requests and %d pauses, %v", reply.Text, len(model.asked), len(clock.slept), err)
			}
		})
	}
}

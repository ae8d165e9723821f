package runner_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/prompt"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A summariser that is slow, and never too slow, is asked for as long as the driver may write nothing. What is left is shortened without it.
func TestCompact_EndsBeforeItsDriverIsTakenForDead(t *testing.T) {
	t.Parallel()
	var clock time.Duration
	asked, compacted := 0, false
	a := newTalk(t, says)
	a.agent.ModelTimeout = time.Minute
	a.agent.Summarizer = generate(func(sdk.ModelRequest) (sdk.ModelReply, error) {
		asked++
		clock += a.agent.ModelTimeout - time.Second
		return sdk.ModelReply{Text: "words"}, nil
	})
	a.agent.Remember = func(summary, next string) string { return summary + "|" + next }
	a.agent.BuildPrompt = func(_ context.Context, in runner.PromptInput) (prompt.Fitted, error) {
		if compacted {
			return prompt.Fitted{Messages: in.Conversation.Messages}, nil
		}
		compacted = true
		turns := make([][]sdk.Message, 42)
		for i := range turns {
			turns[i] = []sdk.Message{sdk.Text(sdk.RoleUser, "hello")}
		}
		return prompt.Fitted{Compaction: &prompt.Compaction{Messages: 1, Lined: 1, Large: true, Turns: turns}}, nil
	}
	r := runner.New(runner.Options{
		Store: a.store, Publisher: nowhere{}, Env: passing{still{&issued}, &clock}, Catalog: only{a.agent},
		Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
	process(t, r, "order 7", starts, `{}`)
	entries := journal(t, r, "order 7")
	longest := runner.LongestCompaction * a.agent.ModelTimeout
	if entries[1].Kind != core.KindCompacted || asked != 5 || clock > longest {
		t.Fatalf("the summariser is asked %d times, for %s, and the entry is %s; want 5 times, for %s at most", asked, clock, entries[1].Kind, longest)
	}
	lines := "- user: hello\n- user: hello\n- user: hello\n- user: hello\n- user: hello\n- user: hello"
	if want := "|words|words|words|words|words|" + lines + "|" + lines; entries[1].Summary.Text != want {
		t.Errorf("the summary is %q, want %q", entries[1].Summary.Text, want)
	}
	if last := entries[len(entries)-1].Head; last.Termination() != "completed:answer" {
		t.Errorf("the run ends with %s", last.Termination())
	}
}

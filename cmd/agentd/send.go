package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
)

func (a *app) runsSendCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "send RUN TEXT",
		Short: "Send a message into a run",
		Long: "send tells the model something while it works or waits. What becomes of the message is up to the agent (steering):\n" +
			"it waits for the next model call, interrupts what is in progress, or is refused.\n" +
			"send waits until the run has the message.",
		Example:           "  agentd runs send order-7 'Take the train instead.'",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRun(cmd.Context(), args[0], func(c *client, store runner.Store, last core.Entry) error {
				return a.send(cmd.Context(), c, store, &last.Head, args[1])
			})
		},
	}
}

func (a *app) send(ctx context.Context, c *client, store runner.Store, h *core.Head, text string) error {
	if err := refusesMessage(ctx, store, h, text); err != nil {
		return err
	}
	data, err := json.Marshal(map[string]string{"message": text})
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	ev := sdk.Event{
		ID: newID("message"), Source: source, Type: "agentd.run.message", Subject: h.Run, Time: time.Now(), Data: data,
	}
	if err := c.Control(ctx, sdk.ControlMessage, h.Agent, h.Key(), ev); err != nil {
		return err
	}
	heard, err := a.untilHeard(ctx, store, h.Key(), core.NoteID(ev.Source, ev.ID))
	if err != nil {
		return err
	}
	return a.print(map[string]any{runField: h.Run, "event": ev.ID, "heard": heard}, func(w io.Writer) error {
		answer := "the run has the message"
		if !heard {
			answer = "sent; the run gets the message when a worker has handled it (if it is refused: agentd dlq list)"
		}
		_, err := fmt.Fprintln(w, answer)
		return err
	})
}

// refusesMessage says what is known of a run that would not take the message, before it is sent.
func refusesMessage(ctx context.Context, store runner.Store, h *core.Head, text string) error {
	switch {
	case h.Status == core.StatusDone:
		return sdk.Errorf(sdk.CodeMessageRefused, "run %s is done (%s)", h.Run, h.Reason)
	case text == "" || len(text) > core.MaxNote:
		return sdk.Errorf(sdk.CodeMessageRefused, "the message has %d bytes; it must have 1 to %d", len(text), core.MaxNote)
	}
	data, err := store.Spec(ctx, h.Spec)
	if err != nil {
		return fmt.Errorf("read the spec of run %s: %w", h.Run, err)
	}
	var spec sdk.AgentSpec
	if err := json.Unmarshal(data, &spec); err != nil {
		return fmt.Errorf("read the spec of run %s: %w", h.Run, err)
	}
	if spec.Steering == sdk.SteeringReject {
		return sdk.Errorf(sdk.CodeMessageRefused, "agent %s takes no messages while it works (steering: reject)", h.Agent)
	}
	return nil
}

// untilHeard waits until the run has the message with that note id, for as long as cancel does.
func (a *app) untilHeard(ctx context.Context, store runner.Store, key sdk.RunKey, note string) (bool, error) {
	waiting, stop := context.WithTimeout(ctx, cancelPatience)
	defer stop()
	for {
		last, err := store.Head(waiting, key)
		if err == nil {
			var e core.Entry
			if e, err = core.DecodeEntry(last.Data); err == nil && slices.Contains(e.Head.Heard, note) {
				return true, nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(waiting.Err(), context.DeadlineExceeded):
			return false, nil
		case err != nil:
			return false, explainStore(err)
		}
		select {
		case <-waiting.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

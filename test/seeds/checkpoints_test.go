package seeds_test

import (
	"context"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// checkpoints are the names of the commit points of a journal, in order.
func checkpoints(entries []core.Entry) []core.Checkpoint {
	var all []core.Checkpoint
	for _, e := range entries {
		all = append(all, e.Checkpoints...)
	}
	return all
}

func checkpointsOf(names ...core.Checkpoint) []core.Checkpoint { return names }

// checkpointsInOrder is rows T3, T11, T13 and T20: the user's message, every accepted reply, every round of tools as a whole,
// and that a worker has let go of the run, suspended or at its end, are durable under their names.
func checkpointsInOrder(t *testing.T) {
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2))), find(3), sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	r := h.Run("desk", message("hello"))
	for range 3 {
		h.Call("shop.find").Answer("shop.find.done", value("it"))
	}
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "checkpoints", checkpoints(h.Parts(r)), []core.Checkpoint{
		core.CheckpointUserMessage,
		core.CheckpointAssistantTurn, core.CheckpointRunFinished, core.CheckpointToolResults, // one for both calls
		core.CheckpointAssistantTurn, core.CheckpointRunFinished, core.CheckpointToolResults,
		core.CheckpointAssistantTurn, core.CheckpointRunFinished,
	})
}

// checkpointAtEveryEnd is row T20 too: a run that ends without anything new to say has its last checkpoint all the same.
func checkpointAtEveryEnd(t *testing.T) {
	show(t, checkpointsInOrder)
	h := start(t, sdktest.Script(), desk())
	r := h.Run("desk", message("hello"))
	fails(t, h, r, deskType) // the model has nothing to say
	equal(t, "checkpoints", checkpoints(h.Parts(r)), []core.Checkpoint{core.CheckpointUserMessage, core.CheckpointRunFinished})
}

// messagesOnce is row T58: ids are given before anything is sent, so what comes twice is remembered once.
func messagesOnce(t *testing.T) {
	model, heard := sdktest.Script(find(1), sdktest.Say("done")), make(chan struct{})
	h := start(t, sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if len(req.Messages) > 1 { // what comes again comes while the model thinks about what came
			<-heard
		}
		return model.Generate(ctx, req, nil)
	}), desk(service("shop.find")))
	init := other(h, "desk", "hats", message("hello"))
	r := h.Send("desk", init)
	call := h.Call("shop.find")
	// The function call_id of docs/wire.md says so.
	equal(t, "the id follows from the content", call.Event.ID, "c1-0-spk6fxqyspnlssrbjfiaq4iipa")
	call.Answer("shop.find.done", value("it"))
	h.Until(r, "told the answer", func(s core.State) bool { return s.Rev == 3 })
	h.PublishAgain(call, call.Response("shop.find.done", value("other")))
	h.Send("desk", init) // the same init event
	close(heard)
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "results", len(results(t, h.Messages(r), 1)), 1)
	equal(t, "model calls", len(model.Requests()), 2)

	h = start(t, sdktest.Script(find(2)), desk(service("shop.find")))
	h.Send("desk", other(h, "desk", "hats", message("hello")))
	equal(t, "of another content", h.Call("shop.find").Event.ID, "c1-0-cnbktjr7gmjx3oruzowejexdx4")
}

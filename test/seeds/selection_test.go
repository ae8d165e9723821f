package seeds_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// manyTools is an agent with three tools that do something, a service, and 37 that do not.
func manyTools(selection *sdk.Selection) sdk.Agent {
	a := desk(service("shop.find"))
	a.Spec.Selection = selection
	for name, description := range map[string]string{
		"paint_wall": "Paint a wall of the house.", "feed_cat": "Give the cat its food.", "close_account": "End a customer's account.",
	} {
		t := echo(name)
		t.Definition.Description = description
		a.Tools = append(a.Tools, t)
	}
	slices.SortFunc(a.Tools, func(a, b sdk.Tool) int { return strings.Compare(a.Definition.Name, b.Definition.Name) })
	for i := range 37 {
		t := echo(fmt.Sprintf("spare_%02d", i))
		t.Definition.Description = "Unused."
		a.Tools = append(a.Tools, t)
	}
	return a
}

// offers are the names of the tools that a model was offered.
func offers(r sdk.ModelRequest) []string {
	var names []string
	for _, d := range r.Tools {
		names = append(names, d.Name)
	}
	return names
}

// embedder is a scripted model that makes embeddings.
type embedder struct {
	*sdktest.Model
	vectors
}

// vectors makes embeddings: what has to do with animals, with houses, or with neither is alike.
type vectors struct {
	mu sync.Mutex
	// texts are how many it was given, each time that it was asked.
	texts []int
	away  error
}

func (e *vectors) Embed(_ context.Context, model string, texts []string) ([][]float64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.texts = append(e.texts, len(texts))
	if e.away != nil {
		return nil, e.away
	}
	vectors := make([][]float64, len(texts))
	for i, text := range texts {
		vectors[i] = []float64{0, 0, 0}
		switch {
		case model != "vectors":
			vectors[i][2] = 1
		case strings.Contains(text, "cat") || strings.Contains(text, "kitten"):
			vectors[i][0] = 7
		case strings.Contains(text, "wall") || strings.Contains(text, "kitchen"):
			vectors[i][1] = 7
		default:
			vectors[i][2] = 7
		}
	}
	return vectors, nil
}

// goAway has it make no embeddings from now on.
func (e *vectors) goAway() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = sdk.Errorf(sdk.CodeUnavailable, "no route to host")
}

// askedFor are the texts that it was given, each time.
func (e *vectors) askedFor() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.texts)
}

// selected are the choices in a journal.
func selected(entries []core.Entry) []core.Offered {
	var all []core.Offered
	for i := range entries {
		if o := entries[i].Offered; o != nil {
			o := *o
			o.For = ""
			all = append(all, o)
		}
	}
	return all
}

// preFilter is row L8: of many tools the model is offered those whose embeddings are most like that of the request. They are chosen once
// for a request, before the model is asked: another worker that goes on offers the same, and asks for no embeddings.
func preFilter(t *testing.T) {
	model := &embedder{Model: sdktest.Script(find(1), sdktest.Say("done"))}
	h := start(t, model, manyTools(&sdk.Selection{Top: 1, Embeddings: &sdk.EmbeddingModel{Provider: "script", Name: "vectors"}}))
	r := h.Run("desk", message("the kitten is hungry"))
	call := h.Call("shop.find") // which was not offered, and is called all the same
	h.StopWorkers()
	h.Restart()
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	requests := asked(t, model.Model, 2)
	equal(t, "offered", offers(requests[0]), []string{"feed_cat", sdk.ToolFindTools})
	equal(t, "offered by another worker", offers(requests[1]), []string{"shop_find", "feed_cat", sdk.ToolFindTools})
	equal(t, "in the journal", selected(h.Parts(r)), []core.Offered{{By: sdk.SelectedByEmbeddings, Tools: []string{"feed_cat", sdk.ToolFindTools}}})
	equal(t, "texts that embeddings were asked for", model.askedFor(), []int{1, 42})

	other := h.Send("desk", other(h, "desk", "second", message("the kitchen is grey")))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, other, `{"response": "done"}`)
	equal(t, "offered to another run", offers(asked(t, model.Model, 4)[2]), []string{"paint_wall", sdk.ToolFindTools})
	equal(t, "texts of the other run", model.askedFor(), []int{1, 42, 1})

	model = &embedder{Model: sdktest.Script(sdktest.Say("done"))}
	h = start(t, model, manyTools(&sdk.Selection{Embeddings: &sdk.EmbeddingModel{Provider: "script", Name: "vectors"}}))
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	equal(t, "how many an agent is offered that does not say it, find_tools among them", len(offers(last(t, model.Model))), 15+1)
}

// filterDegrades is row L74: without a model of embeddings the words of requests and tools are compared, and so they are when that model
// does not answer, which is told. Where there are few tools, all are offered and nothing is chosen.
func filterDegrades(t *testing.T) {
	choose := func(t *testing.T, model sdk.Provider, s *sdk.Selection, want ...string) (*harness.Harness, harness.Run, *listener) {
		t.Helper()
		h := start(t, model, manyTools(s))
		init := h.Init("desk", message("please paint the wall"))
		l := listen(t, h, init.Subject)
		r := h.Send("desk", init)
		succeeds(t, h, r, `{"response": "done"}`)
		return h, r, l
	}
	t.Run("words", func(t *testing.T) {
		model := sdktest.Script(sdktest.Say("done"))
		h, r, _ := choose(t, model, &sdk.Selection{})
		equal(t, "offered", offers(last(t, model)), []string{"paint_wall", sdk.ToolFindTools})
		equal(t, "in the journal", selected(h.Parts(r)), []core.Offered{{By: sdk.SelectedByWords, Tools: []string{"paint_wall", sdk.ToolFindTools}}})
	})
	t.Run("away", func(t *testing.T) {
		model := &embedder{Model: sdktest.Script(sdktest.Say("done"))}
		model.goAway()
		h, r, l := choose(t, model, &sdk.Selection{Embeddings: &sdk.EmbeddingModel{Provider: "script", Name: "vectors"}})
		equal(t, "offered", offers(last(t, model.Model)), []string{"paint_wall", sdk.ToolFindTools})
		equal(t, "in the journal", selected(h.Parts(r)), []core.Offered{{
			By: sdk.SelectedByWords, Tools: []string{"paint_wall", sdk.ToolFindTools}, Degraded: "no route to host",
		}})
		l.await(t, "run.finished", 1)
		equal(t, "told", l.heard(wire.MilestoneChosen), []string{
			`tools.chosen {"by":"words","tools":["paint_wall","find_tools"],"degraded":"no route to host"}`,
		})
	})
	for name, s := range map[string]*sdk.Selection{"few": {Above: 41}, "off": nil} {
		t.Run(name, func(t *testing.T) {
			model := sdktest.Script(sdktest.Say("done"))
			h, r, _ := choose(t, model, s)
			equal(t, "offered", len(last(t, model).Tools), 41)
			equal(t, "entries", kinds(h.Parts(r)), []string{"started", "replied"})
		})
	}
}

// categories is row L53: the model is offered categories in place of tools, and the tools of those that it opens. It may open another one
// later, look for a tool in no category, and call a tool that it was not offered, which people are asked about as about any other.
func categories(t *testing.T) {
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("category_home", map[string]any{"intent": "make it white"})), sdktest.Ask(sdktest.Tool("paint_wall", n(1))),
		sdktest.Ask(sdktest.Tool("category_pets", map[string]any{}), sdktest.Tool("find_tools", map[string]any{"query": "close the account of a customer"})),
		sdktest.Ask(sdktest.Tool("shop_find", n(2))), sdktest.Say("done"),
	)
	a := manyTools(&sdk.Selection{Top: 1, Categories: []sdk.ToolCategory{
		{Name: "home", Description: "Work on the house.", Tools: []string{"paint_*"}},
		{Name: "pets", Description: "Animals.", Tools: []string{"feed_*"}},
		{Name: "spare", Description: "The rest.", Tools: []string{"spare_*"}},
	}})
	a.Hooks.Permissions = asks(sdk.PermissionHold, "shop_find")
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	decide(request(t, h), allow)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	requests := asked(t, model, 5)
	open := []string{sdk.ToolFindTools, "category_home", "category_pets", "category_spare"}
	equal(t, "first pass", offers(requests[0]), open)
	equal(t, "second pass", offers(requests[1]), append([]string{"paint_wall"}, open...))
	equal(t, "once it has called it", offers(requests[2]), append([]string{"paint_wall"}, open...))
	equal(t, "a further category and a search", offers(requests[3]), append([]string{"close_account", "feed_cat", "paint_wall"}, open...))
	equal(t, "what opening tells", results(t, requests[1].Messages, 1)[0].Text,
		`{"note":"You can call these tools from now on.","tools":[{"description":"Paint a wall of the house.","name":"paint_wall"}]}`)
	equal(t, "choices", selected(h.Parts(r)), []core.Offered{{By: sdk.SelectedByCategories, Tools: open}})
}

// alwaysIncluded is row L75: what the agent says is offered always, and so are the tools that end the run or keep it, and those that the
// run has called.
func alwaysIncluded(t *testing.T) {
	model := sdktest.Script(find(1), sdktest.Ask(sdktest.Tool("task_completion", map[string]any{"result": "done"})))
	a := manyTools(&sdk.Selection{Always: []string{"spare_3[01]"}, Top: 1})
	a.Spec.Builtin, a.Spec.StopOn = []string{"task_completion", sdk.ToolUpdatePlan}, []string{"close_account"}
	h := start(t, model, a)
	r := h.Run("desk", message("please paint the wall"))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	want := []string{"task_completion", sdk.ToolUpdatePlan, "close_account", "paint_wall", "spare_30", "spare_31", sdk.ToolFindTools}
	requests := asked(t, model, 2)
	equal(t, "offered", offers(requests[0]), want)
	equal(t, "offered after a call", offers(requests[1]), append([]string{"shop_find"}, want...))
}

package seeds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/llm"
	"agentd/internal/llm/mockllm"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// overHTTP are models whose servers are spoken to over HTTP, by the names of their providers, with pauses that take no time.
func overHTTP(t *testing.T, spec sdk.ModelSpec, servers map[string]http.Handler) sdk.Provider {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	config := llm.Config{HTTPClient: client, Retry: llm.RetryOptions{
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}}
	for name, handler := range servers {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		config.Providers = append(config.Providers, llm.ProviderConfig{Name: name, BaseURL: server.URL + "/v1"})
	}
	registry, err := llm.New(config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := registry.Provider(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// scripted is a model server that answers from a script.
func scripted(t *testing.T, script string) *mockllm.Server {
	t.Helper()
	parsed, err := mockllm.ParseScript("script.yaml", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	return mockllm.New(parsed)
}

// heardTexts are the texts of the fragments that were told, one by one.
func heardTexts(t *testing.T, l *listener) []string {
	t.Helper()
	var texts []string
	for _, e := range l.all() {
		var d sdk.Delta
		if e.Type != wire.LiveDelta {
			continue
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		if d.Text != "" {
			texts = append(texts, d.Text)
		}
	}
	return texts
}

// streamedCompletion is row L13: of one streamed reply, the tokens are told as they come, and the call that it ends with is made with
// its whole arguments, of which the server sends a piece at a time.
func streamedCompletion(t *testing.T) {
	var made []string
	a := desk()
	a.Tools = []sdk.Tool{internal("note", func(_ context.Context, call sdk.ToolCall) ([]byte, error) {
		made = append(made, string(call.Args))
		return call.Args, nil
	})}
	server := scripted(t, `{conversations: [{replies: [
		{text: I write it down., calls: [{name: note, arguments: {n: 12345678901234}}]}, {text: It is noted.}]}]}`)
	h := start(t, overHTTP(t, sdk.ModelSpec{Provider: "a", Name: "m"}, map[string]http.Handler{"a": server}), a)
	r, l := heardRun(t, h)
	succeeds(t, h, r, `{"response": "It is noted."}`)
	l.await(t, "run.finished", 1)
	equal(t, "tokens", heardTexts(t, l), []string{"I write it d", "own.", "It is noted."})
	equal(t, "calls that are told while they are written", l.heard("call.started", "call.ended"),
		[]string{`call.started {"tool":"note"}`, `call.ended {"tool":"note"}`})
	equal(t, "calls that are made", made, []string{`{"n":12345678901234}`})
}

// tokensAsTheyCome is row L36: who watches has a token when the model's server has sent it, and not when the reply is whole.
func tokensAsTheyCome(t *testing.T) {
	goOn := make(chan struct{})
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i, text := range []string{"The answer", " is", " 42."} {
			if i > 0 {
				select {
				case <-goOn:
				case <-r.Context().Done(): // the test has failed
					return
				}
			}
			fmt.Fprintf(w, `data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":%q}}]}`+"\n\n", text)
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, `data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	})
	h := start(t, overHTTP(t, sdk.ModelSpec{Provider: "a", Name: "m"}, map[string]http.Handler{"a": server}), desk())
	r, l := heardRun(t, h)
	l.await(t, "model.delta", 1)
	equal(t, "while the reply is made", heardTexts(t, l), []string{"The answer"})
	goOn <- struct{}{}
	l.await(t, "model.delta", 2)
	equal(t, "while the reply is made", heardTexts(t, l), []string{"The answer", " is"})
	goOn <- struct{}{}
	succeeds(t, h, r, `{"response": "The answer is 42."}`)
	l.await(t, "run.finished", 1)
	equal(t, "in all", heardTexts(t, l), []string{"The answer", " is", " 42."})
}

// keeping is a store that says what it keeps of conversations, in the order in which it does.
type keeping struct {
	*memory.Store
	say func(string)
}

func (k keeping) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	var e core.Entry
	if err := json.Unmarshal(next.Data, &e); err != nil {
		return runner.Version{}, err
	}
	at, err := k.Store.Append(ctx, run, base, next)
	for _, r := range e.Results {
		k.say("the result is " + string(r.Data))
	}
	for _, m := range e.Messages {
		for _, c := range m.Content {
			switch c.Kind {
			case sdk.ContentToolUse:
				k.say(fmt.Sprint(m.Role, " calls ", c.Tool, " ", string(c.Args)))
			case sdk.ContentToolResult:
				k.say(fmt.Sprint(m.Role, " has the result of ", c.Tool))
			case sdk.ContentText:
				k.say(fmt.Sprint(m.Role, " says ", c.Text))
			case sdk.ContentMedia, sdk.ContentThinking, sdk.ContentRedacted:
			}
		}
	}
	return at, err
}

// kept is rows L15, L22 and L33: the assistant's message with the call is kept before the call is made, its result before the model is
// asked again, and the final message as the assistant's, before anybody is answered.
func kept(t *testing.T) {
	var mu sync.Mutex
	var order []string
	say := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	a := desk()
	a.Tools = []sdk.Tool{internal("note", func(_ context.Context, call sdk.ToolCall) ([]byte, error) {
		say("note is run")
		return call.Args, nil
	})}
	script := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("done"))
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		say("the model is asked")
		return script.Generate(ctx, req, nil)
	})
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{a}, Model: model, OpenStore: func(*broker.Conn) runner.Store {
		return keeping{memory.New(), say}
	}})
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	mu.Lock()
	defer mu.Unlock()
	equal(t, "order", order, []string{
		"user says hello", "the model is asked", `assistant calls note {"n":1}`, "note is run", `the result is {"n":1}`,
		"user has the result of note", "the model is asked", `assistant says {"response":"done"}`,
	})
}

// resultsAsTools is row L22 as a model's server sees it: a result has the role of a tool, and names its call.
func resultsAsTools(t *testing.T) {
	var mu sync.Mutex
	var bodies [][]byte
	answers := scripted(t, `{conversations: [{replies: [{calls: [{name: note, arguments: {n: 1}}]}, {text: done}]}]}`)
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		bodies = append(bodies, body)
		mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		answers.ServeHTTP(w, r)
	})
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, overHTTP(t, sdk.ModelSpec{Provider: "a", Name: "m"}, map[string]http.Handler{"a": server}), a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	var request struct {
		Messages []struct {
			Role      string
			Content   any
			ToolCall  string `json:"tool_call_id"`
			ToolCalls []struct{ ID string }
		}
	}
	if err := json.Unmarshal(bodies[len(bodies)-1], &request); err != nil {
		t.Fatal(err)
	}
	last := request.Messages[len(request.Messages)-1]
	call := uses(t, h.Messages(r), 1)[0].CallID
	equal(t, "result", []any{last.Role, last.Content, last.ToolCall}, []any{"tool", `{"n":1}`, call})
}

func keptResults(t *testing.T) {
	t.Run("kept", func(t *testing.T) { show(t, kept) })
	t.Run("sent", resultsAsTools)
}

// toldResults is row L21: the event of a result has its content, and says whether it is a success.
func toldResults(t *testing.T) {
	t.Run("content", func(t *testing.T) { show(t, resultEvent) })
	t.Run("success", func(t *testing.T) { show(t, failureEvent) })
}

// inProcess is row L16: built-in tools run in the worker. Nothing is sent for them, and the run does not wait.
func inProcess(t *testing.T) {
	a := desk(service("shop.find"))
	a.Spec.Builtin = []string{sdk.ToolUpdatePlan, "task_completion"}
	a.Tools = []sdk.Tool{returning("read", lines(20_000))}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool(sdk.ToolUpdatePlan, map[string]any{"goal": "Read it.", "steps": []any{map[string]any{"description": "Read"}}})), sdktest.Ask(sdktest.Tool("read", n(1))), sdktest.Ask(readOn("c2-0", 4000)),
		sdktest.Ask(sdktest.Tool("task_completion", map[string]any{"result": "done"})))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	for _, c := range results(t, h.Messages(r), 4) {
		equal(t, c.Tool+" failed", c.IsError, false)
	}
	equal(t, "the run waited", waits(h.Parts(r)), false)
	stream, err := h.Conn().JetStream().Stream(t.Context(), streams.Name(h.Conn().Subjects(), streams.Out))
	if err != nil {
		t.Fatal(err)
	}
	out, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "what is sent to services", out.State.Subjects, map[string]uint64{})
}

// finalContent is row L35: the end of the stream is told with the final content, once, and after everything else.
func finalContent(t *testing.T) {
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("It is done.")), noting())
	r, l := heardRun(t, h)
	succeeds(t, h, r, `{"response": "It is done."}`)
	l.await(t, "run.finished", 1)
	equal(t, "reply", l.heard("model.reply"), []string{`model.reply {"text":"{\"response\":\"It is done.\"}"}`})
	equal(t, "end", l.heard("run.finished"), []string{
		`run.finished {"code":"answer","data":{"response":"It is done."},"reason":"completed","type":"test.desk.done"}`,
	})
	all := l.all()
	equal(t, "the last that is told", all[len(all)-1].Type, "run.finished")
}

// noting is desk with the tool note.
func noting() sdk.Agent {
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	return a
}

// serverErrors is row L39: a server that answers with status 500 is asked again, and what it then says counts; one that refuses the
// request is not.
func serverErrors(t *testing.T) {
	for name, c := range map[string]struct {
		fault    string
		requests int
		code     string
	}{
		"transient": {fault: "{status: 500, times: 2}", requests: 4},
		"lasting":   {fault: "{status: 400, times: -1}", requests: 1, code: "model_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			server := scripted(t, `{conversations: [{replies: [
				{calls: [{name: note, arguments: {n: 1}}], faults: [`+c.fault+`]}, {text: done}]}]}`)
			h := start(t, overHTTP(t, sdk.ModelSpec{Provider: "a", Name: "m"}, map[string]http.Handler{"a": server}), noting())
			r := h.Run("desk", message("hello"))
			if c.code == "" {
				succeeds(t, h, r, `{"response": "done"}`)
				results(t, h.Messages(r), 1)
			} else {
				equal(t, "code", string(fails(t, h, r, deskType).Code), c.code)
			}
			equal(t, "requests", server.Stats().Requests, c.requests)
		})
	}
}

// modelChain is row L40: after a failure that may pass, when asking again has not helped, the models of the chain are asked in order,
// and the first that answers counts; of which classes of failure that is so, the agent may say.
func modelChain(t *testing.T) {
	failing := func(status int) *mockllm.Server {
		return scripted(t, fmt.Sprintf("{conversations: [{replies: [{text: wrong, faults: [{status: %d, times: -1}]}]}]}", status))
	}
	chain := func(on sdk.Code, first int) (requests []int, h *harness.Harness, r harness.Run) {
		servers := []*mockllm.Server{failing(first), failing(429), scripted(t, `{conversations: [{replies: [{text: done}]}]}`)}
		p := overHTTP(t, sdk.ModelSpec{Provider: "a", Name: "m", Fallback: []sdk.ModelSpec{
			{Provider: "b", Name: "m", On: []sdk.Code{on}}, {Provider: "c", Name: "m", On: []sdk.Code{"rate_limited"}},
		}}, map[string]http.Handler{"a": servers[0], "b": servers[1], "c": servers[2]})
		h = start(t, p, desk())
		r = h.Run("desk", message("hello"))
		h.Done(r)
		for _, s := range servers {
			requests = append(requests, s.Stats().Requests)
		}
		return requests, h, r
	}
	requests, h, r := chain("unavailable", 500)
	equal(t, "requests to each", requests, []int{6, 6, 1})
	succeeds(t, h, r, `{"response": "done"}`)
	requests, h, r = chain("unavailable", 400)
	equal(t, "requests after one that was refused", requests, []int{1, 0, 0})
	equal(t, "code", string(fails(t, h, r, deskType).Code), "model_failed")
}

package mockllm_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/llm"
	"agentd/internal/llm/mockllm"
	"agentd/sdk"
)

// start serves script and returns a provider that asks it through the real client.
func start(t *testing.T, script *mockllm.Script) (*mockllm.Server, *httptest.Server, sdk.Provider) {
	t.Helper()
	mock := mockllm.New(script)
	server := httptest.NewServer(mock)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	p, err := llm.NewOpenAI(llm.OpenAIOptions{
		BaseURL: server.URL + "/v1", SendRun: true, HTTPClient: &http.Client{Transport: transport},
	})
	if err != nil {
		t.Fatal(err)
	}
	return mock, server, p
}

func trip(t *testing.T) *mockllm.Script {
	t.Helper()
	script, err := mockllm.LoadScript("testdata/trip.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return script
}

func ask(run, model string, messages ...sdk.Message) sdk.ModelRequest {
	return sdk.ModelRequest{
		Run: run, Model: model, Messages: messages,
		Tools: []sdk.ToolDefinition{{Name: "find_hotel"}, {Name: "find_flight"}},
	}
}

func toLisbon(run string) sdk.ModelRequest {
	return ask(run, "m", sdk.Text(sdk.RoleUser, "A trip to Lisbon, please"))
}

func TestServer_StreamEqualsWhole(t *testing.T) {
	t.Parallel()
	_, _, p := start(t, trip(t))
	want := []sdk.ModelReply{
		{
			Text: "Let me look at flights and hotels at once.", Model: "m", Units: 151_000_000,
			Calls: []sdk.ToolRequest{
				{Name: "find_flight", Arguments: `{"to":"LIS","on":"2026-05-15","seats":["1A","2B"],"price":1e2,` +
					`"refundable":"yes","note":null}`},
				{Name: "find_hotel", Arguments: `{"city":"Lisboa, Baixa-Chiado","stars":4}`},
			},
			Usage: sdk.Usage{Prompt: 120, Completion: 31},
		},
		{
			Text: "Flight TP 571, and the hotel \"Ávila\".\n", Model: "m", Units: 22_000_000, Truncated: true,
			Usage: sdk.Usage{Prompt: 12, Completion: 10},
		},
		{
			Calls: []sdk.ToolRequest{{Name: "find_hotel", Arguments: `{"city": `}}, Model: "m", Units: 16_000_000,
			Usage: sdk.Usage{Prompt: 13, Completion: 3},
		},
	}
	req := toLisbon("r")
	for i := range want {
		if i > 0 {
			req.Messages = append(req.Messages, sdk.Text(sdk.RoleAssistant, "some text"), sdk.Text(sdk.RoleUser, "go on"))
		}
		var streamed strings.Builder
		var tools []string
		listen := func(d sdk.Delta) {
			streamed.WriteString(d.Text)
			if d.Tool != "" {
				tools = append(tools, d.Tool)
			}
		}
		for _, onDelta := range []func(sdk.Delta){nil, listen} {
			got, err := p.Generate(t.Context(), req, onDelta)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want[i], got); d != "" {
				t.Errorf("turn %d, streamed %v (-want +got):\n%s", i, onDelta != nil, d)
			}
		}
		if streamed.String() != want[i].Text || len(tools) != len(want[i].Calls) {
			t.Errorf("turn %d: the fragments are %q and %q", i, streamed.String(), tools)
		}
	}
}

// agentd healthcheck asks it as it asks a worker.
func TestServer_SaysThatItIsUp(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	mockllm.New(trip(t)).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
	if answer.Code != http.StatusOK {
		t.Errorf("GET /readyz is answered with status %d", answer.Code)
	}
}

func TestServer_EstimatesUsage(t *testing.T) {
	t.Parallel()
	_, _, p := start(t, &mockllm.Script{Conversations: []mockllm.Conversation{
		{Replies: []mockllm.Reply{{Text: strings.Repeat("a", 40)}}},
	}})
	got, err := p.Generate(t.Context(), ask("r", "m", sdk.Text(sdk.RoleUser, strings.Repeat("b", 80))), nil)
	if want := (sdk.Usage{Prompt: 21, Completion: 11}); err != nil || got.Usage != want {
		t.Errorf("got %+v, %v, want %+v", got.Usage, err, want)
	}
}

func TestServer_FaultsThenAnswers(t *testing.T) {
	t.Parallel()
	mock, _, p := start(t, trip(t))
	req := ask("r", "m", sdk.Text(sdk.RoleUser, "limited"))
	for _, streaming := range []bool{true, false} {
		if !streaming {
			req.Run = "another run has faults of its own"
		}
		var pauses []time.Duration
		var deltas []sdk.Delta
		retrying := llm.Retrying(p, llm.RetryOptions{
			Random: func() float64 { return 0 },
			Sleep:  func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil },
		})
		var onDelta func(sdk.Delta)
		if streaming {
			onDelta = func(d sdk.Delta) { deltas = append(deltas, d) }
		}
		reply, err := retrying.Generate(t.Context(), req, onDelta)
		if err != nil || reply.Text != "At last, and with many words." {
			t.Fatalf("got %q, %v", reply.Text, err)
		}
		const ms = time.Millisecond
		if d := cmp.Diff([]time.Duration{1500 * ms, 250 * ms, 500 * ms, 1000 * ms}, pauses); d != "" {
			t.Errorf("pauses (-want +got):\n%s", d)
		}
		want := []sdk.Delta{
			{Text: "At last, and"},
			{Text: " with many w"},
			{Reset: true},
			{Text: "At last, and"},
			{Text: " with many w"},
			{Text: "ords."},
		}
		if d := cmp.Diff(want, deltas); streaming && d != "" {
			t.Errorf("fragments (-want +got):\n%s", d)
		}
	}
	if s := mock.Stats(); s.Requests != 10 || s.Faults != 8 || s.Answered != 2 || s.Repeats != 0 || s.Turns != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestServer_FaultForEver(t *testing.T) {
	t.Parallel()
	_, _, p := start(t, trip(t))
	for range 3 {
		_, err := p.Generate(t.Context(), ask("r", "gone", sdk.Text(sdk.RoleUser, "down")), nil)
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			t.Errorf("got %v", err)
		}
	}
}

func TestServer_DelayEndsWithTheClient(t *testing.T) {
	t.Parallel()
	_, _, p := start(t, &mockllm.Script{Conversations: []mockllm.Conversation{
		{Replies: []mockllm.Reply{{Text: "late", Delay: time.Hour}}},
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Generate(ctx, toLisbon("r"), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestServer_RefusesWhatTheScriptLacks(t *testing.T) {
	t.Parallel()
	mock, _, p := start(t, trip(t))
	beyond := toLisbon("r")
	for range 3 {
		beyond.Messages = append(beyond.Messages, sdk.Text(sdk.RoleAssistant, "so"))
	}
	fewer := toLisbon("r")
	fewer.Tools = fewer.Tools[:1]
	for _, tc := range []struct {
		req  sdk.ModelRequest
		says string
	}{
		{ask("r", "m", sdk.Text(sdk.RoleUser, "to Rome")), `no conversation of the script matches: model "m", run "r"`},
		{ask("r", "m", sdk.Text(sdk.RoleUser, "down")), "no conversation"},
		{beyond, "trip: reply 4 is asked for, and there are 3"},
		{fewer, "trip: tools: want find_flight, find_hotel, got find_hotel"},
	} {
		_, err := p.Generate(t.Context(), tc.req, nil)
		if e := sdk.AsError(err); e.Code != sdk.CodeModel || !strings.Contains(e.Message, tc.says) {
			t.Errorf("got %v, want %q", err, tc.says)
		}
	}
	if s := mock.Stats(); s.Mismatches != 4 || len(s.Details) != 4 || s.Details[2].Turn != 3 || s.Details[2].Run != "r" {
		t.Errorf("stats %+v", s)
	}
}

func TestServer_StatsAndModels(t *testing.T) {
	t.Parallel()
	_, server, p := start(t, trip(t))
	for _, run := range []string{"a", "a", "b"} {
		if _, err := p.Generate(t.Context(), toLisbon(run), nil); err != nil {
			t.Fatal(err)
		}
	}
	var stats mockllm.Stats
	get(t, server.URL+"/stats", &stats)
	want := mockllm.Stats{
		Requests: 3, Answered: 3, Conversations: 2, Turns: 2, Repeats: 1, Details: []mockllm.Mismatch{},
	}
	if d := cmp.Diff(want, stats); d != "" {
		t.Error(d)
	}
	var models struct {
		Data []struct{ ID string }
	}
	get(t, server.URL+"/v1/models", &models)
	if len(models.Data) != 2 || models.Data[1].ID != "gone" {
		t.Errorf("models %+v", models)
	}
}

func get(t *testing.T, url string, out any) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestServer_IDsAreNew(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(mockllm.New(trip(t)))
	t.Cleanup(server.Close)
	seen := map[string]bool{}
	for range 2 {
		body := `{"messages":[{"role":"user","content":[{"type":"text","text":"Lisbon"}]}],
			"tools":[{"function":{"name":"find_flight"}},{"function":{"name":"find_hotel"}}]}`
		res, err := server.Client().Post(server.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Choices []struct {
				Message struct {
					ToolCalls []struct{ ID string } `json:"tool_calls"`
				}
			}
		}
		err = json.NewDecoder(res.Body).Decode(&answer)
		_ = res.Body.Close()
		if err != nil || len(answer.Choices) != 1 {
			t.Fatalf("status %d, %+v, %v", res.StatusCode, answer, err)
		}
		for _, c := range answer.Choices[0].Message.ToolCalls {
			seen[c.ID] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("two answers of two calls have %d ids", len(seen))
	}
}

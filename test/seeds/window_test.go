package seeds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"agentd/internal/core"
	"agentd/internal/mcp"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// lines is a text of numbered lines, of n bytes.
func lines(n int) string {
	var b strings.Builder
	for i := 0; b.Len()+40 < n; i++ {
		fmt.Fprintf(&b, "line %d of a file – é\n", i)
	}
	return b.String() + strings.Repeat("x", n-b.Len())
}

// returning is an inline tool that returns a text.
func returning(name, text string) sdk.Tool {
	return internal(name, func(context.Context, sdk.ToolCall) ([]byte, error) { return json.Marshal(text) })
}

// readOn is a call of read_more.
func readOn(result string, offset int) sdk.ToolRequest {
	return sdktest.Tool(sdk.ToolReadMore, map[string]any{"result": result, "offset": offset})
}

// resultTruncation is row L20: of a long result the model is shown the two ends with a notice, by which it reads on, and the journal has
// all of it.
func resultTruncation(t *testing.T) {
	file := lines(11_537)
	a := desk()
	a.Tools = []sdk.Tool{returning("read", file), returning("look", strings.Repeat("é", 6000)), returning("peek", file)}
	a.Spec.Memory = &sdk.Memory{Results: map[string]int{"peek": 1000}}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("read", n(1)), sdktest.Tool("look", n(2)), sdktest.Tool("peek", n(3))),
		sdktest.Ask(readOn("c1-0", 4001)),
		sdktest.Ask(readOn("c9-9", 0)),
		sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	requests := asked(t, model, 4)
	for i, tools := range []int{3, 4, 4, 4} {
		equal(t, "tools that are offered", len(requests[i].Tools), tools)
	}
	shown := results(t, requests[1].Messages, 3)
	for i, limit := range map[int]int{0: 6000, 2: 1000} {
		head, rest, cut := strings.Cut(shown[i].Text, "\n[bytes ")
		notice, tail, closed := strings.Cut(rest, "]\n")
		if !cut || !closed || !strings.HasPrefix(file, head) || !strings.HasSuffix(file, tail) {
			t.Fatalf("the model is shown %s", shown[i].Text)
		}
		if characters := utf8.RuneCountInString(head + tail); characters > limit || characters < limit*7/8 || len(tail) < limit/4 {
			t.Errorf("%d characters are shown of %d, %d of the end; want about %d", characters, utf8.RuneCountInString(file), len(tail), limit)
		}
		want := fmt.Sprintf("%d to %d of 11537 are left out here; to read on, call read_more with result \"c1-%d\" and offset %d",
			len(head), len(file)-len(tail), i, len(head))
		equal(t, "notice", notice, want)
	}
	equal(t, "a result of 6000 characters", shown[1].Text, strings.Repeat("é", 6000))
	var more struct {
		Text               string
		Offset, Next, Size int
	}
	if err := json.Unmarshal([]byte(results(t, requests[2].Messages, 4)[3].Text), &more); err != nil {
		t.Fatal(err)
	}
	if more.Text != file[more.Offset:more.Next] || more.Offset > 4001 || more.Offset < 3998 || more.Size != 11537 || utf8.RuneCountInString(more.Text) < 5250 {
		t.Errorf("read_more shows %d bytes from %d to %d of %d", len(more.Text), more.Offset, more.Next, more.Size)
	}
	equal(t, "what does not exist", problem(t, results(t, requests[3].Messages, 5)[4]).Code, sdk.CodeTool)
	equalJSON(t, "the journal's result", []byte(results(t, h.Messages(r), 5)[0].Text), string(must(json.Marshal(file))))
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// largeResult is row L20 for a result that no entry holds: it is a blob, which read_more reads, after a restart too, without that
// people are asked, and a run may stop on it.
func largeResult(t *testing.T) {
	file := lines(2 << 20)
	a := desk()
	a.Tools = []sdk.Tool{returning("read", file), returning("finish", lines(300<<10))}
	a.Spec.StopOn = []string{"finish"}
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
		{Tools: []string{"read", "finish"}, Verdict: sdk.PermissionAllow}, {Verdict: sdk.PermissionDeny},
	}}
	last := len(file) - 30
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("read", n(1))), sdktest.Ask(readOn("c1-0", last)), sdktest.Ask(sdktest.Tool("finish", n(1))))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	var output struct{ Response string }
	if err := json.Unmarshal(h.Done(r).Data, &output); err != nil {
		t.Fatal(err)
	}
	equal(t, "output", output.Response == lines(300<<10), true)
	requests := asked(t, model, 3)
	shown := results(t, requests[2].Messages, 2)
	if len(shown[0].Text) > 8000 || !strings.HasPrefix(shown[0].Text, file[:2000]) || !strings.HasSuffix(shown[0].Text, file[len(file)-1000:]) {
		t.Errorf("the model is shown %d bytes: %.100s", len(shown[0].Text), shown[0].Text)
	}
	if shown[1].IsError || !strings.Contains(shown[1].Text, strings.Repeat("x", 20)) {
		t.Errorf("read_more shows %s", shown[1].Text)
	}
	for _, e := range h.Parts(r) {
		for _, result := range e.Results {
			if len(result.Data) > core.LargeResult {
				t.Errorf("entry %d has %d bytes of a result", e.Rev, len(result.Data))
			}
		}
	}
}

func allTruncation(t *testing.T) {
	t.Run("shown", resultTruncation)
	t.Run("stored", largeResult)
}

// mediaOfTools is row A23 for what tools return: images and sounds of MCP servers are shown as such, once.
func mediaOfTools(t *testing.T) {
	server := newRemote(t, "camera")
	mcpsdk.AddTool(server.Server, &mcpsdk.Tool{Name: "take"},
		func(context.Context, *mcpsdk.CallToolRequest, struct{}) (*mcpsdk.CallToolResult, any, error) {
			return &mcpsdk.CallToolResult{Content: []mcpsdk.Content{
				&mcpsdk.TextContent{Text: "taken"}, &mcpsdk.ImageContent{MIMEType: "image/png", Data: []byte("picture")},
				&mcpsdk.AudioContent{MIMEType: "audio/wav", Data: []byte("sound")},
			}}, nil, nil
		})
	a := desk()
	a.Toolsets = []sdk.Toolset{toolsetOf(t, mcp.ServerConfig{Name: "camera", URL: server.url})}
	a.Tools = []sdk.Tool{echo("note")}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("camera_take", map[string]any{}), sdktest.Tool("note", n(1))),
		sdktest.Ask(sdktest.Tool("note", n(2))), sdktest.Say("done"))
	h := start(t, model, a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	requests := asked(t, model, 3)
	for i, seen := range map[int]int{1: 0, 2: 1} {
		messages := requests[i].Messages
		first := messages[2].Content[0]
		equalJSON(t, "result", []byte(first.Text),
			`{"content":[{"type":"text","text":"taken"},{"type":"image","mimeType":"image/png","medium":1},{"type":"audio","mimeType":"audio/wav","medium":2}]}`)
		equal(t, "the result that follows", messages[3].Content[0].Kind, sdk.ContentToolResult)
		media := messages[4]
		equal(t, "media that are shown", []sdk.Media{*media.Content[1].Media, *media.Content[2].Media},
			[]sdk.Media{{MIME: "image/png", Data: "cGljdHVyZQ=="}, {MIME: "audio/wav", Data: "c291bmQ="}})
		equal(t, "how often the model has seen them", media.Seen, seen)
	}
}

// mediaOfServices is row A23 for what services answer.
func mediaOfServices(t *testing.T) {
	camera := service("shop.camera")
	camera.Contract = contract("shop.camera", numberInput, anyObject)
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_camera", n(1))), sdktest.Say("done"))
	h := start(t, model, desk(camera))
	r := h.Run("desk", message("hello"))
	h.Call("shop.camera").Answer("shop.camera.done", map[string]any{
		"photo": map[string]any{"type": "image", "mimeType": "image/png", "data": "cGljdHVyZQ=="},
	})
	succeeds(t, h, r, `{"response": "done"}`)
	messages := last(t, model).Messages
	equalJSON(t, "result", []byte(messages[2].Content[0].Text), `{"photo":{"type":"image","mimeType":"image/png","medium":1}}`)
	equal(t, "what is shown", *messages[3].Content[1].Media, sdk.Media{MIME: "image/png", Data: "cGljdHVyZQ=="})
}

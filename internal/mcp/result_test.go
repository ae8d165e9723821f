package mcp

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

// Nothing that a server sent is left out of what the model is shown.
func TestRead_ShowsEveryKindOfContent(t *testing.T) {
	t.Parallel()
	image := `{"type":"image","data":"aGk=","mimeType":"image/png","annotations":{"audience":["user"]}}`
	audio := `{"type":"audio","data":"aGk=","mimeType":"audio/wav"}`
	resource := `{"type":"resource","resource":{"uri":"file:///a","mimeType":"text/plain","text":"hi"}}`
	link := `{"type":"resource_link","uri":"file:///b","name":"b"}`
	unknown := `{"type":"hologram","depth":3}`
	for name, c := range map[string]struct{ result, want string }{
		"text":       {`{"content":[{"type":"text","text":"hi"}]}`, `{"text":"hi"}`},
		"nothing":    {`{}`, `{"content":[]}`},
		"texts":      {`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`},
		"annotated":  {`{"content":[{"type":"text","text":"a","_meta":{"k":1}}]}`, `{"content":[{"type":"text","text":"a","_meta":{"k":1}}]}`},
		"image":      {`{"content":[` + image + `]}`, `{"content":[` + image + `]}`},
		"audio":      {`{"content":[` + audio + `]}`, `{"content":[` + audio + `]}`},
		"resource":   {`{"content":[` + resource + `]}`, `{"content":[` + resource + `]}`},
		"link":       {`{"content":[` + link + `]}`, `{"content":[` + link + `]}`},
		"unknown":    {`{"content":[` + unknown + `]}`, `{"content":[` + unknown + `]}`},
		"structured": {`{"structuredContent":{"n":12345678901234567890}}`, `{"n":12345678901234567890}`},
		"repeated":   {`{"structuredContent":{"n":1,"m":2},"content":[{"type":"text","text":"{\"m\":2, \"n\":1}"}]}`, `{"n":1,"m":2}`},
		"a text in it": {
			`{"structuredContent":{"content":"a\nfile","size":6},"content":[{"type":"text","text":"a\nfile"}]}`, `{"content":"a\nfile","size":6}`,
		},
		"a text that it wraps": {`{"structuredContent":{"content":"a\nfile"},"content":[{"type":"text","text":"a\nfile"}]}`, `{"text":"a\nfile"}`},
		"a text that is the name of a member": {
			`{"structuredContent":{"n":1},"content":[{"type":"text","text":"n"}]}`,
			`{"content":[{"type":"text","text":"n"}],"structured":{"n":1}}`,
		},
		"both": {
			`{"structuredContent":{"n":1},"content":[{"type":"text","text":"one"},` + link + `]}`,
			`{"content":[{"type":"text","text":"one"},` + link + `],"structured":{"n":1}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, required, err := read([]byte(c.result))
			if err != nil || required != nil {
				t.Fatalf("required %v, error %v", required, err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRead_ErrorsAreToolErrors(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`{"isError":true,"content":[{"type":"text","text":"no"},{"type":"text","text":"room"}]}`: "no\nroom",
		`{"isError":true,"structuredContent":{"why":1}}`:                                         `{"isError":true,"structuredContent":{"why":1}}`,
		`[]`: "the MCP server answered with something that is not a result",
		`{"resultType":"input_required","inputRequests":5}`: "the MCP server asked for what cannot be read",
	} {
		_, _, err := read([]byte(result))
		e, ok := errors.AsType[*sdk.Error](err)
		if !ok || e.Code != sdk.CodeTool || e.Message != want {
			t.Errorf("%s is %v, want %s", result, err, want)
		}
	}
}

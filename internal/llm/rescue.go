package llm

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"agentd/sdk"
)

// unreadCall is how Ollama says that it could not read the arguments of a call which its model wrote.
var unreadCall = regexp.MustCompile(`(?s)error parsing tool call: raw='(.*)', err=(.*)`)

// namedCall is a call that was written with its name.
var namedCall = regexp.MustCompile(`(?s)^\s*\{\s*"name"\s*:\s*"([^"]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(.*)\}\s*$`)

// rescued is the reply with the call that a server of small models answered a request with status 500 for. Its arguments are as the model
// wrote them: the run corrects them or tells the model what is wrong, where asking again might go on for ever. It is not ok when it is not
// known which tool was meant, and when the call ends in the middle.
func rescued(req sdk.ModelRequest, res *http.Response) (sdk.ModelReply, bool) {
	if res == nil || res.StatusCode != http.StatusInternalServerError {
		return sdk.ModelReply{}, false
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	res.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return sdk.ModelReply{}, false
	}
	var answer struct {
		Error struct{ Message string }
	}
	if json.Unmarshal(body, &answer) != nil {
		return sdk.ModelReply{}, false
	}
	found := unreadCall.FindStringSubmatch(answer.Error.Message)
	if found == nil || strings.Contains(found[2], "unexpected end") {
		return sdk.ModelReply{}, false
	}
	name, arguments := "", found[1]
	if named := namedCall.FindStringSubmatch(arguments); named != nil {
		name, arguments = named[1], named[2]
	} else if len(req.Tools) == 1 {
		name = req.Tools[0].Name
	}
	if !slices.ContainsFunc(req.Tools, func(tool sdk.ToolDefinition) bool { return tool.Name == name }) {
		return sdk.ModelReply{}, false
	}
	return sdk.ModelReply{Calls: []sdk.ToolRequest{{Name: name, Arguments: arguments}}, Model: req.Model}, true
}

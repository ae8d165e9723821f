package mockllm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// answer is a reply with the ids it is sent with.
type answer struct {
	id     string
	model  string
	reply  Reply
	calls  []wireCall
	finish string
	usage  wireUsage
}

func newAnswer(req chatRequest, reply Reply) answer {
	a := answer{id: vendorID("chatcmpl-"), model: cmp.Or(req.Model, "mock"), reply: reply, finish: reply.Finish}
	for _, c := range reply.Calls {
		a.calls = append(a.calls, wireCall{
			ID: vendorID(vendorCallID), Type: "function",
			Function: wireFunction{Name: c.Name, Arguments: cmp.Or(string(c.Arguments), "{}")},
		})
	}
	if a.finish == "" {
		a.finish = finishStop
		if len(a.calls) > 0 {
			a.finish = finishCalls
		}
	}
	if u := reply.Usage; u != nil {
		a.usage = wireUsage{Prompt: u.Prompt, Completion: u.Completion}
	} else {
		a.usage = a.estimate(req)
	}
	a.usage.Total = a.usage.Prompt + a.usage.Completion
	return a
}

// estimate takes four characters for a token.
func (a answer) estimate(req chatRequest) wireUsage {
	prompt, completion := 0, utf8.RuneCountInString(a.reply.Text)
	for _, m := range req.Messages {
		prompt += utf8.RuneCountInString(m.Text)
		for _, c := range m.Calls {
			prompt += utf8.RuneCountInString(c.Arguments)
		}
	}
	for _, c := range a.calls {
		completion += utf8.RuneCountInString(c.Function.Arguments)
	}
	return wireUsage{Prompt: int64(prompt/4 + 1), Completion: int64(completion/4 + 1)}
}

func (a answer) response(object string, choices ...choice) chatResponse {
	return chatResponse{ID: a.id, Object: object, Model: a.model, Choices: choices}
}

// whole sends the answer at once. With cut it breaks the connection half-way.
func (a answer) whole(w http.ResponseWriter, cut bool) {
	message := &outgoing{Role: roleAssistant, ToolCalls: a.calls, Content: json.RawMessage("null")}
	if a.reply.Text != "" || len(a.calls) == 0 {
		message.Content = a.reply.Text
	}
	response := a.response("chat.completion", choice{Message: message, FinishReason: &a.finish})
	response.Usage = &a.usage
	if !cut {
		writeJSON(w, http.StatusOK, response)
		return
	}
	var body bytes.Buffer
	_ = json.NewEncoder(&body).Encode(response) // a buffer takes everything
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	_, _ = w.Write(body.Bytes()[:body.Len()/2]) // the connection is broken anyway
	abort(w)
}

// stream sends the answer in fragments. With cut it breaks the connection half-way.
func (a answer) stream(w http.ResponseWriter, includeUsage, cut bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	chunks := a.chunks()
	if cut {
		for _, c := range chunks[:len(chunks)/2+1] {
			writeChunk(w, c)
		}
		abort(w)
	}
	if includeUsage {
		last := a.response("chat.completion.chunk")
		last.Choices, last.Usage = []choice{}, &a.usage
		chunks = append(chunks, last)
	}
	for _, c := range chunks {
		writeChunk(w, c)
	}
	_, _ = w.Write([]byte("data: [DONE]\n\n")) // a client that went away has no use for an error
}

// fragment is how many characters a fragment has.
const fragment = 12

// chunks is the answer in fragments; those of parallel calls take turns, as the protocol allows.
func (a answer) chunks() []chatResponse {
	var out []chatResponse
	add := func(delta outgoing, finish *string) {
		out = append(out, a.response("chat.completion.chunk", choice{Delta: &delta, FinishReason: finish}))
	}
	add(outgoing{Role: roleAssistant, Content: ""}, nil)
	for _, text := range split(a.reply.Text) {
		add(outgoing{Content: text}, nil)
	}
	var arguments [][]string
	longest := 0
	for i, c := range a.calls {
		arguments = append(arguments, split(c.Function.Arguments))
		longest = max(longest, len(arguments[i]))
		c.Index, c.Function.Arguments = &i, ""
		add(outgoing{ToolCalls: []wireCall{c}}, nil)
	}
	for n := range longest {
		for i := range a.calls {
			if n < len(arguments[i]) {
				add(outgoing{ToolCalls: []wireCall{{Index: &i, Function: wireFunction{Arguments: arguments[i][n]}}}}, nil)
			}
		}
	}
	add(outgoing{}, &a.finish)
	return out
}

func split(text string) []string {
	var out []string
	runes := []rune(text)
	for len(runes) > 0 {
		n := min(fragment, len(runes))
		out, runes = append(out, string(runes[:n])), runes[n:]
	}
	return out
}

func writeChunk(w http.ResponseWriter, chunk chatResponse) {
	data, err := json.Marshal(chunk)
	if err != nil {
		return // texts and numbers always encode
	}
	_, _ = w.Write(append(append([]byte("data: "), data...), "\n\n"...)) // a client that went away needs no error
	flush(w)
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// abort breaks the connection in the way that net/http provides.
func abort(w http.ResponseWriter) {
	flush(w)
	panic(http.ErrAbortHandler)
}

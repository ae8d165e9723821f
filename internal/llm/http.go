package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"agentd/internal/address"
)

// endpoint is where a provider's requests go.
type endpoint struct {
	client *http.Client
	base   *url.URL
	// header is that of every request.
	header http.Header
}

// newEndpoint takes a base that newVendor has checked.
func newEndpoint(client *http.Client, base string, header http.Header) (endpoint, error) {
	u, err := url.Parse(base)
	if err != nil {
		return endpoint{}, fmt.Errorf("read the base URL: %w", err)
	}
	header.Set("Content-Type", "application/json")
	header.Set("User-Agent", "agentd")
	return endpoint{limited(client), u, header}, nil
}

// post sends a body as JSON to a path below the base. A refusal is an error with the response, whose body is at hand then; nobody has to
// close it.
func (e endpoint) post(ctx context.Context, path string, header http.Header, body any) (*http.Response, error) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // models read the text as it was written
	if err := encoder.Encode(body); err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	encoded.Truncate(encoded.Len() - 1) // the encoder ends the line
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.base.JoinPath(path).String(), &encoded)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	for _, headers := range []http.Header{e.header, header} {
		for name, values := range headers {
			request.Header[name] = values
		}
	}
	res, err := e.client.Do(request)
	if err != nil {
		return nil, address.Failure(err)
	}
	if res.StatusCode < http.StatusMultipleChoices {
		return res, nil
	}
	said, err := io.ReadAll(res.Body) // as much as limited lets through
	_ = res.Body.Close()              // it was read
	res.Body = io.NopCloser(bytes.NewReader(said))
	if err != nil {
		return res, fmt.Errorf("read the refusal: %w", err)
	}
	return res, errors.New(res.Status)
}

// decode reads JSON as far as it fits: what a compatible server says in another type is left out.
func decode(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	if _, mistyped := errors.AsType[*json.UnmarshalTypeError](err); mistyped {
		return nil
	}
	return err // failure says whose reply it is
}

// jsonText is JSON within a text, as the protocols have it, or an object in its place, as some servers send it. An empty list is how some
// programs write an object without members.
type jsonText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *jsonText) UnmarshalJSON(data []byte) error {
	switch {
	case data[0] == '{':
		*t = jsonText(data)
		return nil
	case string(data) == "[]":
		*t = "{}"
		return nil
	}
	if err := json.Unmarshal(data, (*string)(t)); err != nil {
		return &unreadCallError{err}
	}
	return nil
}

// unreadCallError is a tool call whose form is not known. It does not unwrap: decode must not take it for what can be left out.
type unreadCallError struct{ cause error }

func (e *unreadCallError) Error() string { return "the tool call cannot be read: " + e.cause.Error() }

// streamError is an error that a server sends as an event of a stream.
type streamError struct{ data []byte }

func (e *streamError) Error() string { return "the stream has an error" }

// events calls handle with the data of each event of a stream, until it has had enough or the stream ends. A stream that breaks, or is
// waited for in vain, has ended when whole says that the reply is there.
func events(stream io.Reader, whole func() bool, handle func(data []byte) (enough bool, err error)) error {
	lines := bufio.NewReader(stream)
	var data []byte
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) || err != nil && whole() {
			return nil // an event that is not closed is not whole
		}
		if err != nil {
			return err // failure says whose reply it is
		}
		line = bytes.TrimRight(line, "\r\n")
		if value, isData := bytes.CutPrefix(line, []byte("data:")); isData {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
			continue
		}
		if len(line) > 0 || len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		if enough, err := handle(data); enough || err != nil {
			return err
		}
		data = data[:0]
	}
}

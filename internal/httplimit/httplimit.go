// Package httplimit bounds what an HTTP client reads of a response. Bytes are counted after the transport has decompressed them.
package httplimit

import (
	"fmt"
	"io"
	"mime"
	"net/http"
)

// Limits of one response, in bytes.
type Limits struct {
	// Total bounds the whole body.
	Total int64
	// Part bounds one event of a stream (text/event-stream), and a body of any other kind; 0 is Total.
	Part int64
}

// TooLarge is the error of who reads on.
type TooLarge struct{ Limit int64 }

func (e *TooLarge) Error() string {
	return fmt.Sprintf("the response is larger than %d bytes", e.Limit)
}

// Transport bounds the responses of another one.
type Transport struct {
	// Base is http.DefaultTransport when nil.
	Base http.RoundTripper
	// Limits are those of the response to a request.
	Limits func(*http.Request) Limits
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.base().RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limits := t.Limits(r)
	b := &body{ReadCloser: response.Body, limits: limits, left: limits.Total}
	media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	b.events = err == nil && media == "text/event-stream"
	if b.limits.Part == 0 {
		b.limits.Part = limits.Total
	}
	b.part = b.limits.Part
	response.Body = b
	return response, nil
}

// CloseIdleConnections is what http.Client calls of its transport.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

type body struct {
	io.ReadCloser
	limits Limits
	// left and part are what may still be read, of the whole and of the part.
	left, part int64
	// events says that a blank line begins a new part; blank that the line so far is.
	events, blank bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count(p[:n])
	switch {
	case b.left < 0:
		return 0, &TooLarge{b.limits.Total}
	case b.part < 0:
		return 0, &TooLarge{b.limits.Part}
	default:
		return n, err
	}
}

func (b *body) count(p []byte) {
	b.left -= int64(len(p))
	if !b.events {
		b.part -= int64(len(p))
		return
	}
	for _, c := range p {
		if b.part--; b.part < 0 {
			return
		}
		switch {
		case c == '\r':
		case c == '\n' && b.blank:
			b.part = b.limits.Part
		default:
			b.blank = c == '\n'
		}
	}
}

package llm

import (
	"cmp"
	"context"
	"net/http"

	"agentd/internal/httplimit"
	"agentd/sdk"
)

const (
	// defaultMaxBytes is what a provider's response may have when its model says nothing else. A token of a stream takes some
	// 300 bytes.
	defaultMaxBytes = 64 << 20
	// eventShare is which part of that one event of a stream, or a response that is none, may have: it is read as a whole.
	eventShare = 8
	// maxReply is what is kept of a stream, in bytes: more than a run takes of a reply. partCost is what each part counts beside
	// its text.
	maxReply = 4 << 20
	partCost = 1 << 10
)

type maxBytesKey struct{}

// withMaxBytes bounds the responses to requests with the context, in bytes after decompression; 0 is the default.
func withMaxBytes(ctx context.Context, limit int64) context.Context {
	return context.WithValue(ctx, maxBytesKey{}, cmp.Or(limit, defaultMaxBytes))
}

// limited is client, or http.DefaultClient when that is nil, with bounded responses. It follows no redirects: they would carry the key and
// the prompt to a host that nobody has configured.
func limited(client *http.Client) *http.Client {
	bounded := *cmp.Or(client, http.DefaultClient)
	bounded.Transport = &httplimit.Transport{Base: bounded.Transport, Limits: func(r *http.Request) httplimit.Limits {
		total, _ := r.Context().Value(maxBytesKey{}).(int64)
		total = cmp.Or(total, defaultMaxBytes)
		return httplimit.Limits{Total: total, Part: max(1, total/eventShare)}
	}}
	bounded.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &bounded
}

// kept counts what is kept of a stream.
type kept int

func (k *kept) add(fragments ...string) {
	for _, f := range fragments {
		*k += kept(len(f))
	}
}

// err is not nil when more is kept than a run takes.
func (k *kept) err() error {
	if *k > maxReply {
		return &httplimit.TooLarge{Limit: maxReply}
	}
	return nil
}

func (p vendor) tooLarge(e *httplimit.TooLarge) *sdk.Error {
	return sdk.Errorf(sdk.CodeModel, "model provider %q sent a reply that is larger than %d bytes; see max_bytes in docs/models.md",
		p.name, e.Limit).WithCause(sdk.Errorf(sdk.CodeTooLarge, "the reply is not read to its end").WithCause(e))
}

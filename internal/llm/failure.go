package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"agentd/internal/clip"
	"agentd/internal/httplimit"
	"agentd/sdk"
)

// vendor is what the providers have in common that speak to a server over HTTP.
type vendor struct {
	// name is what errors call the provider; key never appears in them.
	name, key string
	sendRun   bool
}

// newVendor returns CodeConfig when the address is not a URL.
func newVendor(name, key, base string, sendRun bool) (vendor, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		// The address may hold a password, so it is not repeated, nor is the parser's error, which does.
		return vendor{}, sdk.Errorf(sdk.CodeConfig, "model provider %q: the base URL is not an http or https URL", name)
	}
	return vendor{name, key, sendRun}, nil
}

// runHeader are the headers of a request: which requests belong together, where the server wants to know.
func (p vendor) runHeader(req sdk.ModelRequest) http.Header {
	if !p.sendRun {
		return nil
	}
	return http.Header{RunHeader: {url.PathEscape(req.Run)}}
}

// failure maps what went wrong to the error that retry policy is decided on. res is nil when no response came.
func (p vendor) failure(ctx context.Context, model string, res *http.Response, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if large, ok := errors.AsType[*httplimit.TooLarge](err); ok {
		return p.tooLarge(large)
	}
	if broken, ok := errors.AsType[*streamError](err); ok {
		return p.streamFailure(broken.data)
	}
	if unread, ok := errors.AsType[*unreadCallError](err); ok {
		return sdk.Errorf(sdk.CodeModel, "model provider %q sent a tool call that cannot be read", p.name).WithCause(unread)
	}
	switch {
	case res == nil:
		return p.unavailable("could not be reached", err)
	case res.StatusCode >= http.StatusMultipleChoices:
		return p.statusFailure(model, res, err)
	case !isModelContent(res.Header.Get("Content-Type")):
		return p.notAModel(res).WithCause(err)
	default:
		return p.unavailable("broke off its reply", err)
	}
}

func (p vendor) unavailable(what string, cause error) *sdk.Error {
	return &sdk.Error{
		Code: sdk.CodeUnavailable, Message: fmt.Sprintf("model provider %q %s", p.name, what),
		Retryable: true, Cause: cause,
	}
}

// notAModel is for answers that some other kind of server sends, which is nearly always a wrong address.
func (p vendor) notAModel(res *http.Response) *sdk.Error {
	return sdk.Errorf(sdk.CodeConfig, "model provider %q answered with %q instead of a model's reply; check its base URL",
		p.name, res.Header.Get("Content-Type"))
}

func isModelContent(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	return media == "application/json" || media == "text/event-stream" || strings.HasSuffix(media, "+json")
}

func (p vendor) statusFailure(model string, res *http.Response, cause error) error {
	said := p.read(res)
	switch status := res.StatusCode; {
	case status < http.StatusBadRequest:
		return p.redirected(res).WithCause(cause)
	case status == http.StatusTooManyRequests && said.kind == noCredit:
		// Waiting does not fill an account.
		return sdk.Errorf(sdk.CodeConfig, "the account at model provider %q has no credit left%s", p.name, said).
			WithCause(cause)
	case status == http.StatusTooManyRequests:
		return &sdk.Error{
			Code: sdk.CodeRateLimited, Message: fmt.Sprintf("model provider %q limits the rate%s", p.name, said),
			Retryable: true, RetryAfter: retryAfter(res.Header), Cause: cause,
		}
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status >= http.StatusInternalServerError:
		e := p.unavailable(fmt.Sprintf("answered with status %d%s", status, said), cause)
		e.RetryAfter = retryAfter(res.Header)
		return e
	case refusesRequest(status, said.kind):
		return sdk.Errorf(sdk.CodeModel, "%s%s", p.refusal(status, model), said).WithCause(cause)
	default:
		return sdk.Errorf(sdk.CodeConfig, "%s%s", p.refusal(status, model), said).WithCause(cause)
	}
}

// redirected names the host that a server points to, and no more: what follows it may be a secret.
func (p vendor) redirected(res *http.Response) *sdk.Error {
	to, err := res.Location()
	if err != nil {
		return sdk.Errorf(sdk.CodeConfig, "model provider %q answered with status %d; check its base URL", p.name, res.StatusCode)
	}
	return sdk.Errorf(sdk.CodeConfig, "model provider %q redirects to %q, which is not followed; check its base URL", p.name, p.clean(to.Host))
}

// refusesRequest reports whether a status, or what the provider said with it, is about the request itself, so that it would be
// refused again. Any other refusal is about the key, the account, the model's name or the address, which an operator can mend.
func refusesRequest(status int, kind string) bool {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity,
		http.StatusUnavailableForLegalReasons:
		return true
	}
	return kind == contentFilter
}

// refusal says who can act on a refused request.
func (p vendor) refusal(status int, model string) string {
	switch status {
	case http.StatusUnauthorized:
		return fmt.Sprintf("model provider %q does not accept the API key", p.name)
	case http.StatusForbidden:
		return fmt.Sprintf("model provider %q does not allow this API key to use the model %q", p.name, model)
	case http.StatusNotFound:
		return fmt.Sprintf("model provider %q has no model %q, or its base URL is wrong", p.name, model)
	default:
		return fmt.Sprintf("model provider %q refused the request with status %d", p.name, status)
	}
}

// streamFailure is for an error that the server sends inside a stream whose status was fine.
func (p vendor) streamFailure(data []byte) error {
	said := p.understand(data)
	switch said.kind {
	case "rate_limit_exceeded", "rate_limit_error":
		return &sdk.Error{
			Code: sdk.CodeRateLimited, Message: fmt.Sprintf("model provider %q limits the rate%s", p.name, said),
			Retryable: true,
		}
	case "invalid_request_error", "request_too_large", contentFilter, "context_length_exceeded":
		return sdk.Errorf(sdk.CodeModel, "model provider %q stopped its reply%s", p.name, said)
	case noCredit, "authentication_error", "permission_error", "not_found_error":
		return sdk.Errorf(sdk.CodeConfig, "model provider %q stopped its reply%s", p.name, said)
	default:
		return p.unavailable("stopped its reply"+said.String(), nil)
	}
}

// noCredit is how OpenAI says that an account is empty, as code or as type of an error of status 429.
const noCredit = "insufficient_quota"

// contentFilter is how providers say that their policy forbids a request or its reply.
const contentFilter = "content_filter"

// errorText is what a provider said in an error.
type errorText struct{ kind, message string }

func (e errorText) String() string {
	if e.message == "" {
		return ""
	}
	return ": " + e.message
}

const (
	maxErrorBody = 64 << 10
	maxErrorText = 500
)

func (p vendor) read(res *http.Response) errorText {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		return errorText{}
	}
	said := p.understand(body)
	if media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); said.message == "" && err == nil &&
		media == "text/plain" {
		said.message = p.clean(string(body))
	}
	return said
}

// understand reads the forms that compatible servers use: {"error": {…}}, {"error": "…"}, {"message": …},
// {"detail": …}.
func (p vendor) understand(body []byte) errorText {
	type fields struct {
		Message any `json:"message"`
		Detail  any `json:"detail"`
		Type    any `json:"type"`
		Code    any `json:"code"`
	}
	var outer struct {
		Error json.RawMessage `json:"error"`
		fields
	}
	if json.Unmarshal(body, &outer) != nil {
		return errorText{} // a page of a proxy, say; the status tells enough
	}
	f := outer.fields
	if len(outer.Error) > 0 {
		var text string
		if json.Unmarshal(outer.Error, &text) == nil {
			f.Message = text
		} else if json.Unmarshal(outer.Error, &f) != nil {
			return errorText{}
		}
	}
	said := errorText{kind: firstText(f.Code, f.Type), message: p.clean(firstText(f.Message, f.Detail))}
	if f.Type == noCredit {
		said.kind = noCredit
	}
	return said
}

// firstText returns the first of values that is a text; servers also send numbers and lists in these fields.
func firstText(values ...any) string {
	for _, v := range values {
		if s, ok := v.(string); ok && s != "" {
			return s
		}
	}
	return ""
}

var keyLike = regexp.MustCompile(`\bsk-[A-Za-z0-9_*.-]{6,}`)

// clean makes a provider's message fit to show: one line, bounded, and without the key, which some servers echo.
func (p vendor) clean(message string) string {
	if p.key != "" {
		message = strings.ReplaceAll(message, p.key, "[key]")
	}
	return clip.Text(keyLike.ReplaceAllString(strings.Join(strings.Fields(message), " "), "[key]"), maxErrorText)
}

// retryAfter reads how long to wait from the headers; 0 is unknown.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return positive(ms, time.Millisecond)
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return positive(seconds, time.Second)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	// The server's own date is preferred, so that a wrong clock here does not matter.
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(0, at.Sub(now)), longestWait)
}

// longestWait is more than anyone waits for a model because its server said so.
const longestWait = 24 * time.Hour

// positive converts without overflow.
func positive(n float64, unit time.Duration) time.Duration {
	switch {
	case !(n > 0): // also not a number
		return 0
	case n*float64(unit) > float64(longestWait):
		return longestWait
	default:
		return time.Duration(n * float64(unit))
	}
}

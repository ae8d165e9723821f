// Package webhook tells webhooks of what waits for people. Each has a consumer of its own on the stream of calls, so that
// every request is told of at least once, whatever is restarted, and one webhook that is away holds up no other.
//
// Requests are signed in the way of Standard Webhooks: webhook-id, webhook-timestamp and webhook-signature, which is
// "v1," and the base64 of the HMAC-SHA256 of "<id>.<timestamp>.<body>".
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentd/internal/address"
	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/desk"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Target is one webhook.
type Target struct {
	URL string
	// Key is what requests are signed with: see Key.
	Key []byte
}

// Name is the webhook's in the broker: it follows from the URL, so that a webhook keeps its place in the stream.
func (w Target) Name() string {
	sum := sha256.Sum256([]byte(w.URL))
	return hex.EncodeToString(sum[:8])
}

// place is the URL without what may be secret in it, for the log.
func (w Target) place() string {
	u, err := url.Parse(w.URL)
	if err != nil {
		return w.Name()
	}
	return u.Scheme + "://" + u.Host
}

// Options are what Run needs.
type Options struct {
	Conn *broker.Conn
	// Desk is open for the domains of the webhooks.
	Desk    *desk.Desk
	Targets []Target
	Logger  *slog.Logger
	// Backoff is the first delay after a failure, which doubles up to longestBackoff; 0 is 1 s.
	Backoff time.Duration
}

const (
	// timeout bounds one request. It is shorter than streams.CallWait.
	timeout        = 10 * time.Second
	defaultBackoff = time.Second
	longestBackoff = 5 * time.Minute
	// slots is how many requests a webhook gets at once.
	slots = 4
	// afterDue is how much later than a reminder is due its call comes again: never before it is.
	afterDue = 100 * time.Millisecond
	// mostFailed is of how many calls it is remembered how often the webhook could not be told.
	mostFailed = 10_000
	// maxAnswer is how much of a response is read, so that its connection can be used again.
	maxAnswer = 16 << 10
)

// behind is how long a delivery waits for the desk to read as far. It may be away for long, as when it reaches no worker.
var behind = retry.Pauses{First: 100 * time.Millisecond, Longest: 2 * time.Second}

// Run tells the webhooks until ctx ends.
func Run(ctx context.Context, o Options) {
	if o.Backoff == 0 {
		o.Backoff = defaultBackoff
	}
	client := &http.Client{
		Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // what is asked goes to nobody but who was configured
		},
	}
	defer client.CloseIdleConnections()
	var running sync.WaitGroup
	for _, w := range o.Targets {
		t := &teller{Options: o, client: client, target: w, failed: map[stored]int{}}
		running.Go(func() {
			o.Conn.Consume(ctx, broker.ConsumeOptions{
				Consumers: o.Conn.AwaitReading(ctx, streams.WebhookConsumer(w.Name())), Slots: slots, Grace: timeout, Handle: t.handle,
			})
		})
	}
	running.Wait()
}

// teller tells one webhook.
type teller struct {
	Options
	client *http.Client
	target Target

	mu sync.Mutex
	// failed counts how often in a row the webhook could not be told of a call. How often it was delivered says less: it is given back while the
	// desk is behind, too.
	failed map[stored]int
}

// stored is where a call is.
type stored struct {
	stream   string
	sequence uint64
}

// handle tells the webhook of one call, and settles the delivery. One that people are to be reminded of comes again.
func (t *teller) handle(ctx context.Context, d broker.Delivery) {
	var err error
	told, next, failure := t.tell(ctx, d)
	pause := t.noted(d, told, failure)
	if failure != nil {
		t.Logger.Warn("webhook could not be told; trying again", "webhook", t.target.place(), "delay", pause, "error", failure)
	}
	switch {
	case told && next > 0:
		err = d.Nak(max(time.Until(time.UnixMilli(next)), 0) + afterDue)
	case told:
		err = d.Ack()
	default:
		err = d.Nak(pause)
	}
	if err != nil {
		t.Logger.Warn("delivery could not be settled", "subject", d.Subject(), "error", err)
	}
}

// noted notes what came of a delivery, and returns for how long the webhook is left alone with a call that it was not told of: because it could not
// be, or because the desk is behind.
func (t *teller) noted(d broker.Delivery, told bool, failure error) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := stored{d.Stream(), d.Sequence()}
	if told {
		delete(t.failed, at)
	}
	switch {
	case told:
		return 0
	case failure == nil:
		return behind.Nth(d.Delivered())
	}
	if len(t.failed) >= mostFailed { // those of runs that ended meanwhile never come back
		clear(t.failed)
	}
	t.failed[at]++
	return retry.Pauses{First: t.Backoff, Longest: longestBackoff}.Nth(t.failed[at])
}

// tell reports whether nothing is left to be told now: the webhook knows, or nobody waits any more. Without an error the desk is
// behind. next is when the webhook is to be reminded, in Unix milliseconds, or 0.
func (t *teller) tell(ctx context.Context, d broker.Delivery) (told bool, next int64, err error) {
	subject, err := t.Conn.Subjects().Parse(d.Subject())
	if err != nil {
		return true, 0, nil //nolint:nilerr // not a call, so there is nothing to tell
	}
	if !t.Desk.Read(subject.Call.Domain, d) {
		return false, 0, nil
	}
	detail, err := t.Desk.Detail(ctx, subject.Call.Call)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		return true, 0, nil // it is not open any more
	}
	if err != nil {
		return false, 0, err
	}
	kind, id := "agentd.approvals.added", detail.ID
	if detail.Reminded > 0 && d.Delivered() > 1 {
		kind, id = "agentd.approvals.reminded", fmt.Sprintf("%s-reminder-%d", detail.ID, detail.Reminded)
	}
	body, err := json.Marshal(map[string]any{"type": kind, "request": detail})
	if err != nil {
		return false, 0, fmt.Errorf("encode request %s: %w", detail.ID, err)
	}
	if err := post(ctx, t.client, t.target, id, body); err != nil {
		return false, 0, err
	}
	return true, detail.NextReminder(), nil
}

func post(ctx context.Context, client *http.Client, to Target, id string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make the request: %w", address.Failure(err))
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", wire.ContentTypeJSON)
	r.Header.Set("Idempotency-Key", id)
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", stamp)
	r.Header.Set("Webhook-Signature", Sign(to.Key, id, stamp, body))
	response, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("post: %w", address.Failure(err))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // only the status counts
	if err := response.Body.Close(); err != nil {
		return fmt.Errorf("post: %w", err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("post: it answers %s", response.Status)
	}
	return nil
}

// secretPrefix begins a secret in the form of Standard Webhooks: the rest is the key in base64.
const secretPrefix = "whsec_"

// Key is the key that a secret stands for: what "whsec_" and base64 say, as Standard Webhooks has it, else the text itself.
func Key(secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return []byte(secret), nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return nil, sdk.Errorf(sdk.CodeConfig, "a secret that begins with %s must go on with the key in base64", secretPrefix)
	}
	return key, nil
}

// Sign is the signature of a request, for receivers to compare.
func Sign(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

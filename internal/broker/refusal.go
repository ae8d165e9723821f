package broker

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// refusals tell requests that the server will not answer, and subscriptions that nothing will come, because the user may not make them: it
// says so on the connection and not as an answer, and who waits would wait until its time is up.
type refusals struct {
	mu      sync.Mutex
	waiting map[*refusalWait]bool
	// listening are those who are told that their subscriptions are refused.
	listening map[*refusalHeard]bool
}

type refusalHeard struct {
	subject string
	told    func(error)
}

// heard has told called when the server refuses a subscription to subject, each time that it does, until forget is called. told must not wait.
func (r *refusals) heard(subject string, told func(error)) (forget func()) {
	h := &refusalHeard{subject, told}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listening == nil {
		r.listening = map[*refusalHeard]bool{}
	}
	r.listening[h] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listening, h)
	}
}

type refusalWait struct {
	// about says which subjects of refused publishes are the request's.
	about func(subject string) bool
	end   context.CancelCauseFunc
}

// until returns a context that also ends when the server refuses a publish on subject. The caller must call stop, and may
// ask explain what an error means.
func (r *refusals) until(ctx context.Context, subject string) (bounded context.Context, explain func(error) error, stop func()) {
	return r.untilAbout(ctx, func(refused string) bool { return refused == subject })
}

func (r *refusals) untilAbout(ctx context.Context, about func(subject string) bool) (bounded context.Context, explain func(error) error, stop func()) {
	bounded, end := context.WithCancelCause(ctx)
	w := &refusalWait{about, end}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[*refusalWait]bool{}
	}
	r.waiting[w] = true
	explain = func(err error) error {
		if cause := context.Cause(bounded); err != nil && errors.Is(cause, &sdk.Error{Code: sdk.CodePermissionDenied}) {
			return cause
		}
		return err
	}
	return bounded, explain, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, w)
		end(nil)
	}
}

// Permitted calls do with a context that ends when the server refuses anything that this connection publishes meanwhile. The
// error then has the code CodePermissionDenied. It is for commands that do one thing at a time.
func (c *Conn) Permitted(ctx context.Context, do func(context.Context) error) error {
	ctx, explain, stop := c.refusals.untilAbout(ctx, func(string) bool { return true })
	defer stop()
	return explain(do(ctx))
}

// report ends the requests, and tells the subscriptions, that an error of the connection is about, and says whether there are any.
func (r *refusals) report(err error) (told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if subject, refused := refusedSubject(err, `Subscription to "`); refused {
		for h := range r.listening {
			if h.subject == subject {
				h.told(sdk.Errorf(sdk.CodePermissionDenied, "the NATS server does not let this user listen to %s", subject).WithCause(err))
				told = true
			}
		}
	}
	subject, refused := refusedSubject(err, `Publish to "`)
	if !refused {
		return told
	}
	for w := range r.waiting {
		if w.about(subject) {
			w.end(sdk.Errorf(sdk.CodePermissionDenied, "the NATS server does not let this user publish on %s", subject).WithCause(err))
			told = true
		}
	}
	return told
}

// refusedSubject is the subject that the server names, in quotes, after what it refuses.
func refusedSubject(err error, what string) (subject string, refused bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	_, rest, found := strings.Cut(err.Error(), what)
	subject, _, quoted := strings.Cut(rest, `"`)
	return subject, found && quoted
}

// refusable is a JetStream that says at once what this user may not look at.
type refusable struct {
	jetstream.JetStream
	refusals *refusals
}

// Stream implements jetstream.JetStream.
func (r refusable) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	ctx, explain, stop := r.refusals.until(ctx, "$JS.API.STREAM.INFO."+name)
	defer stop()
	s, err := r.JetStream.Stream(ctx, name)
	return s, explain(err)
}

// Consumer implements jetstream.JetStream.
func (r refusable) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	ctx, explain, stop := r.refusals.until(ctx, "$JS.API.CONSUMER.INFO."+stream+"."+name)
	defer stop()
	consumer, err := r.JetStream.Consumer(ctx, stream, name)
	return consumer, explain(err)
}

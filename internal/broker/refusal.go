package broker

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"agentd/sdk"
)

// refusals tell requests that the server will not answer, because the user may not make them: it says so on the connection
// and not as an answer, and the request would wait until its time is up.
type refusals struct {
	mu      sync.Mutex
	waiting map[*refusalWait]bool
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

// report ends the requests that an error of the connection is about, and says whether there are any.
func (r *refusals) report(err error) (told bool) {
	subject, refused := refusedPublish(err)
	if !refused {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.waiting {
		if w.about(subject) {
			w.end(sdk.Errorf(sdk.CodePermissionDenied, "the NATS server does not let this user publish on %s", subject).WithCause(err))
			told = true
		}
	}
	return told
}

// refusedPublish is the subject that the server names, in quotes.
func refusedPublish(err error) (subject string, refused bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	_, rest, publish := strings.Cut(err.Error(), `Publish to "`)
	subject, _, quoted := strings.Cut(rest, `"`)
	return subject, publish && quoted
}

package llm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
)

// RetryOptions bound the retries of one model call. Zero values are the defaults.
type RetryOptions struct {
	// Attempts is how often a model is asked at most, the first included; default 6.
	Attempts int
	// MaxRetryAfter is the longest wait that a server may ask for; default 1 minute. Who asks for more is not asked again here.
	MaxRetryAfter time.Duration
	// Sleep returns nil after d, or ctx's error when that ends first.
	Sleep func(ctx context.Context, d time.Duration) error
	// Random returns a number in [0, 1), and Now the time that ctx's deadline is compared with. With these two and
	// Sleep a simulation decides everything.
	Random func() float64
	Now    func() time.Time
}

const (
	defaultAttempts      = 6
	defaultMaxRetryAfter = time.Minute
)

// A server that limits the rate wants longer pauses than one that stumbled.
var pausesByCode = map[sdk.Code]retry.Pauses{
	sdk.CodeRateLimited: {First: 2 * time.Second, Longest: time.Minute},
	sdk.CodeUnavailable: {First: 500 * time.Millisecond, Longest: 20 * time.Second},
}

func (o RetryOptions) withDefaults() RetryOptions {
	if o.Attempts <= 0 {
		o.Attempts = defaultAttempts
	}
	if o.MaxRetryAfter <= 0 {
		o.MaxRetryAfter = defaultMaxRetryAfter
	}
	if o.Sleep == nil {
		o.Sleep = retry.Sleep
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Retrying asks p again after errors that are retryable, with growing and jittered pauses, until Attempts or ctx's
// deadline. It is the one layer that retries. When fragments of a failed attempt were sent, Delta.Reset precedes those
// of the next.
func Retrying(p sdk.Provider, o RetryOptions) sdk.Provider {
	return &retrying{provider: p, RetryOptions: o.withDefaults()}
}

type retrying struct {
	provider sdk.Provider
	RetryOptions
}

func (r *retrying) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	fragments := &fragments{send: onDelta}
	pauses := map[sdk.Code]*retry.Sequence{}
	for attempt := 1; ; attempt++ {
		reply, err := r.provider.Generate(ctx, req, fragments.listener())
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return sdk.ModelReply{}, ctx.Err()
		}
		failure, ok := errors.AsType[*sdk.Error](err)
		if !ok || !failure.Retryable {
			return sdk.ModelReply{}, err
		}
		if attempt == r.Attempts {
			return sdk.ModelReply{}, gaveUp(failure, attempt)
		}
		if failure.RetryAfter > r.MaxRetryAfter {
			return sdk.ModelReply{}, gaveUp(failure, attempt)
		}
		pause := r.pause(failure, pauses)
		if deadline, ok := ctx.Deadline(); ok && !r.Now().Add(pause).Before(deadline) {
			// Sleeping into the deadline would turn a failure that says what is wrong into one that does not.
			return sdk.ModelReply{}, gaveUp(failure, attempt)
		}
		if err := r.Sleep(ctx, pause); err != nil {
			return sdk.ModelReply{}, err
		}
		fragments.reset()
	}
}

// pause is how long to wait after failure: half to all of the interval that the class of error has reached, or what the
// server asked for and up to a tenth more, so that workers do not come back at once.
func (r *retrying) pause(failure *sdk.Error, pauses map[sdk.Code]*retry.Sequence) time.Duration {
	growing := pauses[failure.Code]
	if growing == nil {
		policy, ok := pausesByCode[failure.Code]
		if !ok {
			policy = pausesByCode[sdk.CodeUnavailable]
		}
		growing = policy.Start()
		pauses[failure.Code] = growing
	}
	interval := growing.Next()
	random := r.Random()
	pause := interval/2 + time.Duration(random*float64(interval/2))
	if asked := failure.RetryAfter; asked > 0 {
		pause = max(pause, asked+time.Duration(random*float64(asked/10)))
	}
	return pause
}

func gaveUp(failure *sdk.Error, attempts int) error {
	if attempts == 1 {
		return failure
	}
	e := *failure
	e.Message = fmt.Sprintf("%s (asked %d times)", failure.Message, attempts)
	return &e
}

// fragments remembers whether a listener holds fragments that a new attempt would repeat.
type fragments struct {
	send  func(sdk.Delta)
	dirty bool
}

// listener is nil when nobody listens, because then a provider need not stream.
func (f *fragments) listener() func(sdk.Delta) {
	if f.send == nil {
		return nil
	}
	return func(d sdk.Delta) {
		f.dirty = !d.Reset
		f.send(d)
	}
}

func (f *fragments) reset() {
	if f.dirty {
		f.dirty = false
		f.send(sdk.Delta{Reset: true})
	}
}

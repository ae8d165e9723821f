package llm_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/llm"
	"agentd/sdk"
)

// step is what a scripted provider does when it is asked once.
type step struct {
	deltas []sdk.Delta
	err    error
	reply  string
	// hangs waits for the end of the attempt.
	hangs bool
}

// scripted does its steps in order and the last one for ever.
type scripted struct {
	steps []step
	asked []sdk.ModelRequest
}

func (s *scripted) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	next := s.steps[min(len(s.asked), len(s.steps)-1)]
	s.asked = append(s.asked, req)
	if next.hangs {
		<-ctx.Done()
		return sdk.ModelReply{}, ctx.Err()
	}
	for _, d := range next.deltas {
		if onDelta != nil {
			onDelta(d)
		}
	}
	return sdk.ModelReply{Text: next.reply, Usage: sdk.Usage{Prompt: 10, Completion: 2}}, next.err
}

var (
	errUnavailable = &sdk.Error{Code: sdk.CodeUnavailable, Message: "away", Retryable: true}
	errLimited     = &sdk.Error{Code: sdk.CodeRateLimited, Message: "slow", Retryable: true}
	errRefused     = sdk.Errorf(sdk.CodeModel, "refused")
)

func limitedFor(d time.Duration) error {
	e := *errLimited
	e.RetryAfter = d
	return &e
}

// pauses collects the sleeps of a retrying provider without sleeping. Random is 1 or nearly: pauses are at their
// longest.
type pauses struct {
	slept []time.Duration
	now   time.Time
	// during is called in each sleep.
	during func()
}

func (p *pauses) options() llm.RetryOptions {
	p.now = time.Unix(1_000_000, 0)
	return llm.RetryOptions{
		Sleep: func(ctx context.Context, d time.Duration) error {
			p.slept = append(p.slept, d)
			p.now = p.now.Add(d)
			if p.during != nil {
				p.during()
			}
			return ctx.Err()
		},
		Random: func() float64 { return 1 },
		Now:    func() time.Time { return p.now },
	}
}

func TestRetrying_Pauses(t *testing.T) {
	t.Parallel()
	const s, ms = time.Second, time.Millisecond
	for _, tc := range []struct {
		name  string
		steps []step
		want  []time.Duration
		err   error
		asked int
	}{
		{"answers at once", []step{{reply: "yes"}}, nil, nil, 1},
		{
			"grows",
			[]step{{err: errUnavailable}, {err: errUnavailable}, {err: errUnavailable}, {reply: "yes"}},
			[]time.Duration{500 * ms, s, 2 * s},
			nil, 4,
		},
		{
			"gives up",
			[]step{{err: errUnavailable}},
			[]time.Duration{500 * ms, s, 2 * s, 4 * s, 8 * s},
			errUnavailable, 6,
		},
		{
			"slower when limited",
			[]step{{err: errLimited}},
			[]time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 32 * s},
			errLimited, 6,
		},
		{
			"each class for itself",
			[]step{{err: errLimited}, {err: errUnavailable}, {err: errLimited}, {reply: "yes"}},
			[]time.Duration{2 * s, 500 * ms, 4 * s},
			nil, 4,
		},
		{"as asked", []step{{err: limitedFor(20 * s)}, {reply: "yes"}}, []time.Duration{22 * s}, nil, 2},
		{
			"not as long as an hour",
			[]step{{err: limitedFor(time.Hour)}, {reply: "yes"}},
			nil,
			errLimited, 1,
		},
		{"never sooner than its own", []step{{err: limitedFor(ms)}, {reply: "yes"}}, []time.Duration{2 * s}, nil, 2},
		{"not what is final", []step{{err: errRefused}}, nil, errRefused, 1},
		{"final after all", []step{{err: errUnavailable}, {err: errRefused}}, []time.Duration{500 * ms}, errRefused, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inner, clock := &scripted{steps: tc.steps}, &pauses{}
			reply, err := llm.Retrying(inner, clock.options()).Generate(t.Context(), hello(), nil)
			if !errors.Is(err, tc.err) || (tc.err == nil && reply.Text != "yes") {
				t.Errorf("got %q, %v, want %v", reply.Text, err, tc.err)
			}
			if d := cmp.Diff(tc.want, clock.slept); d != "" {
				t.Errorf("pauses (-want +got):\n%s", d)
			}
			if len(inner.asked) != tc.asked {
				t.Errorf("asked %d times, want %d", len(inner.asked), tc.asked)
			}
		})
	}
}

func TestRetrying_JitterIsHalf(t *testing.T) {
	t.Parallel()
	clock := &pauses{}
	options := clock.options()
	options.Random = func() float64 { return 0 }
	_, err := llm.Retrying(&scripted{steps: []step{{err: errUnavailable}, {err: limitedFor(5 * time.Second)}, {}}}, options).
		Generate(t.Context(), hello(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]time.Duration{250 * time.Millisecond, 5 * time.Second}, clock.slept); d != "" {
		t.Error(d)
	}
}

func TestRetrying_SaysHowOftenItAsked(t *testing.T) {
	t.Parallel()
	clock := &pauses{}
	_, err := llm.Retrying(&scripted{steps: []step{{err: errUnavailable}}}, clock.options()).
		Generate(t.Context(), hello(), nil)
	if e := sdk.AsError(err); e.Message != "away (asked 6 times)" || !e.Retryable {
		t.Errorf("got %v", err)
	}
	if errUnavailable.Message != "away" {
		t.Error("the provider's error was modified")
	}
}

func TestRetrying_EndsBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	clock := &pauses{}
	options := clock.options()
	// Far in the future for the real clock, so that only the injected one can decide.
	clock.now = time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), clock.now.Add(3*time.Second))
	defer cancel()
	_, err := llm.Retrying(&scripted{steps: []step{{err: errUnavailable}}}, options).Generate(ctx, hello(), nil)
	if e := sdk.AsError(err); e.Code != sdk.CodeUnavailable || e.Message != "away (asked 3 times)" {
		t.Errorf("got %v", err)
	}
	if d := cmp.Diff([]time.Duration{500 * time.Millisecond, time.Second}, clock.slept); d != "" {
		t.Error(d)
	}
}

func TestRetrying_StopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	clock := &pauses{during: cancel}
	inner := &scripted{steps: []step{{err: errUnavailable}}}
	_, err := llm.Retrying(inner, clock.options()).Generate(ctx, hello(), nil)
	if !errors.Is(err, context.Canceled) || len(inner.asked) != 1 {
		t.Errorf("asked %d times: %v", len(inner.asked), err)
	}
}

func TestRetrying_RealSleepStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	inner := &scripted{steps: []step{{err: limitedFor(time.Minute)}}}
	asked := sdkFunc(func(c context.Context, r sdk.ModelRequest, f func(sdk.Delta)) (sdk.ModelReply, error) {
		defer time.AfterFunc(0, cancel)
		return inner.Generate(c, r, f)
	})
	if _, err := llm.Retrying(asked, llm.RetryOptions{}).Generate(ctx, hello(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type sdkFunc func(context.Context, sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error)

func (f sdkFunc) Generate(c context.Context, r sdk.ModelRequest, d func(sdk.Delta)) (sdk.ModelReply, error) {
	return f(c, r, d)
}

func TestRetrying_ResetsFragments(t *testing.T) {
	t.Parallel()
	clock := &pauses{}
	inner := &scripted{steps: []step{
		{err: errUnavailable}, // nothing was sent, so nothing is reset
		{deltas: []sdk.Delta{{Text: "He"}, {Tool: "f"}}, err: errUnavailable},
		{err: errUnavailable}, // reset already
		{deltas: []sdk.Delta{{Text: "Hello"}}, reply: "Hello"},
	}}
	var got []sdk.Delta
	_, err := llm.Retrying(inner, clock.options()).Generate(t.Context(), hello(), func(d sdk.Delta) { got = append(got, d) })
	if err != nil {
		t.Fatal(err)
	}
	want := []sdk.Delta{{Text: "He"}, {Tool: "f"}, {Reset: true}, {Text: "Hello"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestFallback_AsksTheNext(t *testing.T) {
	t.Parallel()
	first := &scripted{steps: []step{{deltas: []sdk.Delta{{Text: "I ca"}}, err: errRefused}}}
	second := &scripted{steps: []step{{deltas: []sdk.Delta{{Text: "Yes"}}, reply: "Yes"}}}
	third := &scripted{steps: []step{{reply: "never"}}}
	var got []sdk.Delta
	reply, err := fallback(first, second, third).Generate(t.Context(), hello(),
		func(d sdk.Delta) { got = append(got, d) })
	if err != nil || reply.Text != "Yes" || len(third.asked) != 0 {
		t.Errorf("got %q, %v; the third was asked %d times", reply.Text, err, len(third.asked))
	}
	if d := cmp.Diff([]sdk.Delta{{Text: "I ca"}, {Reset: true}, {Text: "Yes"}}, got); d != "" {
		t.Error(d)
	}
}

// A model that hangs has its share of the time, as each has.
func TestFallback_LeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	hangs := func() llm.Alternative { return llm.Alternative{Provider: &scripted{steps: []step{{hangs: true}}}} }
	answers := func() llm.Alternative { return llm.Alternative{Provider: &scripted{steps: []step{{reply: "here"}}}} }
	fails := func() llm.Alternative {
		return llm.Alternative{Provider: &scripted{steps: []step{{err: errUnavailable}}}}
	}
	limited := answers()
	limited.On = []sdk.Code{sdk.CodeRateLimited} // not after a silence
	const silent = "the model did not answer within "
	for name, c := range map[string]struct {
		chain []llm.Alternative
		took  time.Duration
		said  string
	}{
		"the first of two":               {[]llm.Alternative{hangs(), answers()}, time.Minute, ""},
		"two of three":                   {[]llm.Alternative{hangs(), hangs(), answers()}, 80 * time.Second, ""},
		"the second":                     {[]llm.Alternative{fails(), hangs(), answers()}, 40 * time.Second, ""},
		"one that nobody is asked after": {[]llm.Alternative{hangs(), limited}, time.Minute, silent + "1m0s"},
		"the last":                       {[]llm.Alternative{fails(), hangs()}, time.Minute, "no model answered: away; " + silent + "1m0s"},
		"the first, and the last fails":  {[]llm.Alternative{hangs(), fails()}, time.Minute, "no model answered: " + silent + "1m0s; away"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				began := time.Now()
				reply, err := llm.Fallback(c.chain...).Generate(ctx, hello(), nil)
				if took := time.Since(began); took != c.took {
					t.Errorf("it took %s; want %s", took, c.took)
				}
				switch {
				case c.said == "" && (err != nil || reply.Text != "here"):
					t.Errorf("got %q, %v", reply.Text, err)
				case c.said != "" && (sdk.AsError(err).Code != sdk.CodeUnavailable || sdk.AsError(err).Message != c.said):
					t.Errorf("got %v; want %q", err, c.said)
				}
			})
		})
	}
}

func TestFallback_ReportsEveryFailure(t *testing.T) {
	t.Parallel()
	_, err := fallback(&scripted{steps: []step{{err: errRefused}}}, &scripted{steps: []step{{err: errLimited}}}).
		Generate(t.Context(), hello(), nil)
	e := sdk.AsError(err)
	if e.Code != sdk.CodeRateLimited || !e.Retryable || e.Message != "no model answered: refused; slow" {
		t.Errorf("got %v", err)
	}
	if !errors.Is(err, errRefused) {
		t.Error("the first failure is not in the chain")
	}
}

func TestFallback_StopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	second := &scripted{steps: []step{{reply: "yes"}}}
	_, err := fallback(&scripted{steps: []step{{hangs: true}}}, second).Generate(ctx, hello(), nil)
	if !errors.Is(err, context.Canceled) || len(second.asked) != 0 {
		t.Errorf("got %v; the second was asked %d times", err, len(second.asked))
	}
}

// fallback asks each provider after any failure.
func fallback(providers ...sdk.Provider) sdk.Provider {
	alternatives := make([]llm.Alternative, len(providers))
	for i, p := range providers {
		alternatives[i].Provider = p
	}
	return llm.Fallback(alternatives...)
}

func TestFallback_ByClassOfFailure(t *testing.T) {
	t.Parallel()
	limited := &scripted{steps: []step{{err: errLimited}}}
	skipped := &scripted{}
	last := &scripted{steps: []step{{reply: "here"}}}
	reply, err := llm.Fallback(
		llm.Alternative{Provider: limited},
		llm.Alternative{Provider: skipped, On: []sdk.Code{sdk.CodeModel}},
		llm.Alternative{Provider: last, On: []sdk.Code{sdk.CodeUnavailable, sdk.CodeRateLimited}},
	).Generate(t.Context(), hello(), nil)
	if err != nil || reply.Text != "here" {
		t.Errorf("reply %q, error %v", reply.Text, err)
	}
	// Whoever is behind a wrong key may take what the other refuses.
	wrongKey := sdk.Errorf(sdk.CodeConfig, "the key is wrong")
	if _, err := fallback(
		&scripted{steps: []step{{err: errRefused}}}, &scripted{steps: []step{{err: wrongKey}}},
	).Generate(t.Context(), hello(), nil); sdk.AsError(err).Code != sdk.CodeConfig {
		t.Errorf("with an alternative whose key is wrong, the error is %v", err)
	}
	_, err = llm.Fallback(
		llm.Alternative{Provider: &scripted{steps: []step{{err: errRefused}}}},
		llm.Alternative{Provider: skipped, On: []sdk.Code{sdk.CodeRateLimited}},
	).Generate(t.Context(), hello(), nil)
	if sdk.AsError(err).Code != sdk.CodeModel {
		t.Errorf("without an alternative for it, the error is %v", err)
	}
}

package service

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentd/sdk"
	"agentd/sdk/wire"
)

func TestService_AnswersACall(t *testing.T) {
	t.Parallel()
	var seen Call
	s := weather(t, func(ctx context.Context, call Call, in place) (forecast, error) {
		seen = call
		return sunny(ctx, call, in)
	}, Units(1_500_000))
	w := start(t, s)
	w.run(Server{}, s)
	c := w.call(s, `{"city":"Bern"}`)
	got := w.answer(c)
	want := wire.Event{
		ID: c.event.ID + "-answer", Source: forecastType, Type: forecastDone, Subject: c.event.Subject,
		DataContentType: wire.ContentTypeJSON, DataSchema: "#/weather/forecast/1.0.0", ParentID: c.event.ID,
		To: c.event.RedirectTo, AccessControl: "tenant:acme", ExecutionUnits: 1_500_000,
		TraceParent: c.event.TraceParent, TraceState: c.event.TraceState,
		Data: json.RawMessage(`{"text":"sunny in Bern","warnings":[],"days":1}`),
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(wire.Event{}, "Time"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if age := time.Since(got.Time); age < 0 || age > deadline {
		t.Errorf("answer is of %s", got.Time)
	}
	w.settled(s)
	want = c.event
	want.DataContentType = wire.ContentTypeJSON
	wantCall := Call{IdempotencyKey: c.event.ID, Attempt: 1, Version: "1.0.0", Event: want}
	if diff := cmp.Diff(wantCall, seen, cmpopts.IgnoreUnexported(Call{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
}

func TestService_AttemptsAndDomainsShareTheIdempotencyKey(t *testing.T) {
	t.Parallel()
	keys := make(chan Call, 2)
	s := weather(t, func(ctx context.Context, call Call, in place) (forecast, error) {
		keys <- call
		return sunny(ctx, call, in)
	}, Domains("", "weather.bureau"))
	w := start(t, s)
	w.run(Server{}, s)
	c := w.newCall(s, `{"city":"Bern"}`)
	again := c
	again.address.Domain = "weather_bureau"
	again.address.Call += "-r3-weather_bureau"
	again.event.ID = again.address.Call
	for _, c := range []sent{c, again} {
		w.publish(c)
		if got := w.answer(c); got.ParentID != c.event.ID {
			t.Errorf("call %s: answer to %s", c.event.ID, got.ParentID)
		}
	}
	first, second := receive(t, "call", keys), receive(t, "second call", keys)
	if first.IdempotencyKey != second.IdempotencyKey || first.Attempt != 1 || second.Attempt != 3 {
		t.Errorf("got keys %s and %s, attempts %d and %d", first.IdempotencyKey, second.IdempotencyKey, first.Attempt, second.Attempt)
	}
}

func TestService_RefusesWhatBreaksTheContract(t *testing.T) {
	t.Parallel()
	s := weather(t, func(context.Context, Call, place) (forecast, error) {
		t.Error("the handler is called")
		return forecast{}, nil
	})
	w := start(t, s)
	w.run(Server{}, s)
	for name, test := range map[string]struct {
		data   string
		change func(*wire.Event)
		code   sdk.Code
		paths  []string
		text   string
	}{
		"data": {
			data: `{"city":"","days":9}`, code: sdk.CodeContractViolation, paths: []string{"$.city", "$.days"},
			text: "the data does not fit #/weather/forecast/1.0.0",
		},
		"nothing": {data: `{}`, code: sdk.CodeContractViolation, paths: []string{"$.city"}, text: "does not fit"},
		"version": {
			data: `{"city":"Bern"}`, change: func(e *wire.Event) { e.DataSchema = "#/weather/forecast/1.1.0" },
			code: sdk.CodeContractMissing, text: "it has 1.0.0",
		},
		"contract": {
			data: `{"city":"Bern"}`, change: func(e *wire.Event) { e.DataSchema = "#/weather/report/1.0.0" },
			code: sdk.CodeContractMissing, text: "#/weather/report",
		},
		"dataschema": {
			data: `{"city":"Bern"}`, change: func(e *wire.Event) { e.DataSchema = "forecast" },
			code: sdk.CodeInvalidEvent, text: "<uri>/<version>",
		},
		"type": {
			data: `{"city":"Bern"}`, change: func(e *wire.Event) { e.Type = "weather_forecast" },
			code: sdk.CodeInvalidEvent, text: "weather_forecast",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.newCall(s, test.data)
			if test.change != nil {
				test.change(&c.event)
			}
			p := w.problem(w.publish(c))
			var paths []string
			for _, f := range p.Faults {
				paths = append(paths, f.Path)
			}
			if p.Code != test.code || !strings.Contains(p.ErrorMessage, test.text) || p.Retryable || !cmp.Equal(paths, test.paths) {
				t.Errorf("got %+v", p)
			}
			if got := w.answer(c).DataSchema; got != "#/weather/forecast/0.0.0" {
				t.Errorf("dataschema %s", got)
			}
		})
	}
	w.settled(s)
}

func TestService_ServesEveryVersion(t *testing.T) {
	t.Parallel()
	contract := forecastContract
	contract.Versions = map[string]sdk.ContractVersion{
		"1.0.0": forecastContract.Versions["1.0.0"], "2.0.0": forecastContract.Versions["1.0.0"],
		"10.0.0": forecastContract.Versions["1.0.0"],
	}
	s := newService(t, contract)
	version := func(prefix string) func(context.Context, Call, place) (forecast, error) {
		return func(_ context.Context, call Call, _ place) (forecast, error) {
			return forecast{Text: prefix + call.Version}, nil
		}
	}
	Handle(s, version("others "))
	Handle(s, version("second "), "2.0.0")
	w := start(t, s)
	w.run(Server{}, s)
	for schema, want := range map[string]string{
		"#/weather/forecast/1.0.0": "others 1.0.0", "#/weather/forecast/2.0.0": "second 2.0.0", "": "others 10.0.0",
	} {
		c := w.newCall(s, `{"city":"Bern"}`)
		c.event.DataSchema = schema
		var got forecast
		if err := json.Unmarshal(w.answer(w.publish(c)).Data, &got); err != nil || got.Text != want {
			t.Errorf("%q: got %q, want %q (%v)", schema, got.Text, want, err)
		}
	}
}

const secret = "password of the database"

type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic(secret) }

func TestService_ANilErrorIsNone(t *testing.T) {
	t.Parallel()
	fails := func() *sdk.Error { return nil }
	s := weather(t, func(context.Context, Call, place) (any, error) { return forecast{Text: "sunny"}, fails() })
	w := start(t, s)
	w.run(Server{}, s)
	var got forecast
	if err := json.Unmarshal(w.answer(w.call(s, `{"city":"Bern"}`)).Data, &got); err != nil || got.Text != "sunny" {
		t.Errorf("got %q, %v", got.Text, err)
	}
}

func TestService_MapsErrors(t *testing.T) {
	t.Parallel()
	full := &sdk.Error{
		Code: sdk.CodeRateLimited, Message: "too many forecasts", Retryable: true, Cause: errors.New(secret),
		Faults: []sdk.Fault{{Path: "$.city", Expected: "a Swiss city"}},
	}
	internal := wire.Problem{ErrorName: "internal", ErrorMessage: "internal error", Code: sdk.CodeInternal}
	for name, test := range map[string]struct {
		handler func(ctx context.Context) (any, error)
		want    wire.Problem
		logged  string
	}{
		"own": {
			handler: func(context.Context) (any, error) { return nil, errors.Join(errors.New(secret), full) },
			want: wire.Problem{
				ErrorName: "rate_limited", ErrorMessage: "too many forecasts", Code: sdk.CodeRateLimited, Retryable: true, Faults: full.Faults,
			},
			logged: secret,
		},
		"without a code": {
			handler: func(context.Context) (any, error) { return nil, &sdk.Error{Message: "no"} },
			want:    wire.Problem{ErrorName: "tool_failed", ErrorMessage: "no", Code: sdk.CodeTool},
		},
		"any": {
			handler: func(context.Context) (any, error) { return nil, errors.New(secret) }, want: internal, logged: secret,
		},
		"beside a nil one": {
			handler: func(context.Context) (any, error) {
				var none *sdk.Error
				return forecast{Text: "sunny"}, errors.Join(errors.New(secret), none)
			}, want: internal, logged: secret,
		},
		"panic": {handler: func(context.Context) (any, error) { panic(secret) }, want: internal, logged: secret},
		"goexit": {
			handler: func(context.Context) (any, error) { runtime.Goexit(); return nil, nil }, want: internal,
			logged: "ended its goroutine",
		},
		"timeout": {
			handler: func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
			want: wire.Problem{
				ErrorName: "deadline_exceeded", ErrorMessage: "the service took too long", Code: sdk.CodeDeadline, Retryable: true,
			},
		},
		"another's timeout": {
			handler: func(context.Context) (any, error) { return nil, context.DeadlineExceeded }, want: internal,
		},
		"answer that breaks the contract": {
			handler: func(context.Context) (any, error) {
				return forecast{Text: secret, Days: 8}, nil
			}, want: internal, logged: "$.days: expected",
		},
		"answer that is not an object": {
			handler: func(context.Context) (any, error) { return nil, nil }, want: internal, logged: "does not fit the contract",
		},
		"answer without JSON": {
			handler: func(context.Context) (any, error) { return map[string]any{"text": "", "n": math.NaN()}, nil }, want: internal,
			logged: "encode the answer",
		},
		"answer whose JSON panics": {
			handler: func(context.Context) (any, error) { return map[string]any{"text": explosive{}}, nil }, want: internal,
			logged: "answer panicked: " + secret,
		},
		"answer of an unknown type": {
			handler: func(context.Context) (any, error) { return Answer{Type: "weather.report"}, nil }, want: internal,
			logged: `type \"weather.report\"`,
		},
		"answer that is too large": {
			handler: func(context.Context) (any, error) { return forecast{Text: strings.Repeat("x", 2<<20)}, nil },
			want: wire.Problem{
				ErrorName: "too_large", ErrorMessage: "the answer is larger than the broker takes", Code: sdk.CodeTooLarge,
			},
		},
		"error that is too large": {
			handler: func(context.Context) (any, error) {
				return nil, sdk.Errorf(sdk.CodeTool, "%s", strings.Repeat("x", 2<<20))
			},
			want: wire.Problem{
				ErrorName: "too_large", ErrorMessage: "the answer is larger than the broker takes", Code: sdk.CodeTooLarge,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := weather(t, func(ctx context.Context, _ Call, _ place) (any, error) { return test.handler(ctx) })
			if name == "timeout" {
				s.timeout = 20 * time.Millisecond
			}
			w := start(t, s)
			w.run(Server{}, s)
			c := w.call(s, `{"city":"Bern"}`)
			got := w.problem(c)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
			if strings.Contains(string(w.answer(c).Data), secret) {
				t.Error("the answer tells the secret")
			}
			if !w.log.contains(test.logged) {
				t.Errorf("the log does not contain %q", test.logged)
			}
			w.settled(s)
		})
	}
}

func TestService_HandlerChoosesTypeAndCost(t *testing.T) {
	t.Parallel()
	contract := forecastContract
	contract.Versions = map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(`{"type":"object"}`),
		Emits: map[string]json.RawMessage{
			"weather.unknown": json.RawMessage(`{"type":"object"}`), forecastDone: json.RawMessage(`{"type":"object"}`),
		},
	}}
	s := newService(t, contract, Units(1))
	Handle(s, func(_ context.Context, _ Call, in map[string]string) (Answer, error) {
		if in["city"] == "Atlantis" {
			return Answer{Type: "weather.unknown", Data: map[string]any{}, Units: 5}, nil
		}
		return Answer{Data: map[string]any{}}, nil
	})
	w := start(t, s)
	w.run(Server{}, s)
	got := w.answer(w.call(s, `{"city":"Atlantis"}`))
	if got.Type != "weather.unknown" || got.ExecutionUnits != 5 {
		t.Errorf("got %s for %s", got.Type, got.ExecutionUnits)
	}
	if p := w.problem(w.call(s, `{}`)); p.Code != sdk.CodeInternal {
		t.Errorf("an answer without a type: got %+v", p)
	}
}

// A caller must not get one value past the contract and another to the handler.
func TestService_HandlerSeesTheDataThatWasChecked(t *testing.T) {
	t.Parallel()
	s := weather(t, sunny)
	w := start(t, s)
	w.run(Server{}, s)
	got := w.answer(w.call(s, `{"city":"Bern","CITY":"Oslo","City":7}`))
	if want := `{"text":"sunny in Bern","warnings":[],"days":1}`; string(got.Data) != want {
		t.Errorf("got %s, want %s", got.Data, want)
	}
}

func TestNew_ListsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := New(sdk.Contract{Type: "a b", Versions: map[string]sdk.ContractVersion{
		"0.0.0": {Accepts: json.RawMessage(`{"type":"object"}`)},
		"1.0.0": {
			Accepts: json.RawMessage(`{"type":"string"}`),
			Emits:   map[string]json.RawMessage{"sys.a b.error": json.RawMessage(`{"type":"object"}`)},
		},
	}}, nil, Timeout(-1), Concurrency(0), Units(-1), Domains("r2"))
	e := sdk.AsError(err)
	var paths []string
	for _, f := range e.Faults {
		paths = append(paths, f.Path)
	}
	want := []string{
		"options[0]", "$.uri", "$.type", `$.versions["0.0.0"]`, `$.versions["0.0.0"].emits`, `$.versions["1.0.0"].emits`,
		`$.versions["1.0.0"].accepts`, "timeout", "concurrency", "units", "domains",
	}
	if diff := cmp.Diff(want, paths); diff != "" || e.Code != sdk.CodeConfig {
		t.Errorf("%s: faults (-want +got):\n%s", e.Code, diff)
	}
}

func TestRun_ListsWhatCannotBeServed(t *testing.T) {
	t.Parallel()
	contract := forecastContract
	one := forecastContract.Versions["1.0.0"]
	contract.Versions = map[string]sdk.ContractVersion{
		"1.0.0": one, "2.0.0": one,
		"3.0.0": {Accepts: one.Accepts, Emits: map[string]json.RawMessage{"a": one.Emits[forecastDone], "b": one.Emits[forecastDone]}},
	}
	s := newService(t, contract)
	Handle(s, sunny, "1.0.0", "4.0.0")
	Handle(s, sunny, "1.0.0", "3.0.0")
	Handle[place, forecast](s, nil, "2.0.0")
	other := weather(t, sunny)
	Handle(other, sunny)
	err := Run(t.Context(), s, other, nil, &Service{})
	e := sdk.AsError(err)
	var got []string
	for _, f := range e.Faults {
		got = append(got, f.String())
	}
	want := []string{
		"weather.forecast 4.0.0: expected a version of the contract: 1.0.0, 2.0.0, 3.0.0, got a handler for another",
		"weather.forecast 1.0.0: expected one handler, got another",
		"weather.forecast 3.0.0: expected a handler that returns service.Answer, because there are several: a, b, " +
			"got one that does not choose",
		"weather.forecast 2.0.0: expected a handler, got nil",
		"weather.forecast 1.0.0: expected one handler, got another",
		"weather.forecast: expected one service of svc_local_weather_forecast, got two",
		"services[2]: expected a service that New has made, got none",
		"services[3]: expected a service that New has made, got none",
	}
	if diff := cmp.Diff(want, got); diff != "" || e.Code != sdk.CodeConfig {
		t.Errorf("%s: faults (-want +got):\n%s", e.Code, diff)
	}
	err = Run(t.Context(), newService(t, forecastContract))
	if faults := sdk.AsError(err).Faults; len(faults) != 1 || faults[0].String() != "weather.forecast 1.0.0: expected a handler, got none" {
		t.Errorf("without a handler: %v", err)
	}
	if err := Run(t.Context()); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("no services: got %v", err)
	}
}

func TestHandle_PanicsWithoutAService(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := recover(); p != "service: a handler of no service: the error of New tells why there is none" {
			t.Errorf("it says %v", p)
		}
	}()
	Handle(nil, sunny)
}

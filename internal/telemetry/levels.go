package telemetry

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Lag is how far a consumer is behind.
type Lag struct {
	Stream, Consumer string
	// Pending messages were never delivered, Unacked ones are in hand.
	Pending, Unacked int64
}

// Runs is how many runs of an agent have a status.
type Runs struct {
	Agent, Status string
	Count         int64
	// Oldest is for how many seconds the run that moved last has not.
	Oldest float64
}

// Parked is how many runs of an agent have something to do and wait for Why: "model", "rate", or "paused".
type Parked struct {
	Agent, Why string
	Count      int64
	// Oldest is for how many seconds the one has waited that has waited longest.
	Oldest float64
}

// Levels are measured from time to time and shown until they are measured again. Safe for concurrent use.
type Levels struct {
	mu     sync.Mutex
	lag    []Lag
	runs   []Runs
	parked []Parked
	// full is whether each stream is.
	full map[string]bool
	stop func() error
}

// Levels shows what is set later; nil when telemetry is off. Close ends that.
func (t *Telemetry) Levels() (*Levels, error) {
	if t == nil || t.meter == noMeter {
		return nil, nil
	}
	gauge := func(name, unit, description string) (metric.Float64ObservableGauge, error) {
		return t.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	}
	lag, err1 := gauge("agentd.consumer.lag", "{message}", "Messages that a consumer has not delivered yet.")
	unacked, err2 := gauge("agentd.consumer.unacknowledged", "{message}", "Messages that are in hand of the consumer's workers.")
	runs, err3 := gauge("agentd.runs.current", "{run}", "Runs in the store, by status.")
	age, err4 := gauge("agentd.runs.oldest.age", "s", "How long the run that has been in a status longest has not moved.")
	parked, err5 := gauge("agentd.runs.parked", "{run}", "Runs that have something to do and wait, by what for.")
	waiting, err6 := gauge("agentd.runs.parked.oldest.age", "s", "How long the parked run has waited that has waited longest.")
	full, err7 := gauge("agentd.stream.full", "{stream}", "1 where a stream that clients publish to is at a limit of its own, and takes no more, else 0.")
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		return nil, err
	}
	l := &Levels{}
	registration, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, c := range l.lag {
			of := metric.WithAttributeSet(attribute.NewSet(keyDestination.String(c.Stream), keyConsumer.String(c.Consumer)))
			o.ObserveFloat64(lag, float64(c.Pending), of)
			o.ObserveFloat64(unacked, float64(c.Unacked), of)
		}
		for _, r := range l.runs {
			of := metric.WithAttributeSet(attribute.NewSet(keyAgent.String(r.Agent), keyStatus.String(r.Status)))
			o.ObserveFloat64(runs, float64(r.Count), of)
			o.ObserveFloat64(age, r.Oldest, of)
		}
		for _, p := range l.parked {
			of := metric.WithAttributeSet(attribute.NewSet(keyAgent.String(p.Agent), keyParkedWhy.String(p.Why)))
			o.ObserveFloat64(parked, float64(p.Count), of)
			o.ObserveFloat64(waiting, p.Oldest, of)
		}
		for stream, isFull := range l.full {
			value := 0.0
			if isFull {
				value = 1
			}
			o.ObserveFloat64(full, value, metric.WithAttributeSet(attribute.NewSet(keyDestination.String(stream))))
		}
		return nil
	}, lag, unacked, runs, age, parked, waiting, full)
	if err != nil {
		return nil, err
	}
	l.stop = registration.Unregister
	return l, nil
}

// SetLag replaces what is shown of consumers.
func (l *Levels) SetLag(lag []Lag) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = lag
}

// SetFull replaces what is shown of streams: whether each is full.
func (l *Levels) SetFull(full map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = full
}

// SetRuns replaces what is shown of runs.
func (l *Levels) SetRuns(runs []Runs, parked []Parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs, l.parked = runs, parked
}

// Close ends the showing.
func (l *Levels) Close() error { return l.stop() }

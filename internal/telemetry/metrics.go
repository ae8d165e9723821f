package telemetry

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

var noMeter = noop.NewMeterProvider().Meter(scope)

// instruments are what agentd measures; docs/operations.md lists them. Durations are in seconds.
type instruments struct {
	started, finished, suspensions, turns, takeovers, guarded, judged, chosen metric.Int64Counter
	// redelivered counts messages that came again, deadLetters those that nobody could handle.
	redelivered, deadLetters metric.Int64Counter
	// busy is how many activations are in hand.
	busy metric.Int64UpDownCounter
	// suspended is how long runs that went on had been suspended.
	suspended, activation, store, publish metric.Float64Histogram
	// answers is what runs see of services, calls what a service sees of itself.
	model, tools, answers, calls metric.Float64Histogram
	tokens, entrySize, prompts   metric.Int64Histogram
}

// Boundaries of histograms: seconds of quick operations, of models and tools, of waiting, and bytes.
var (
	quick   = metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
	slow    = metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
	waiting = metric.WithExplicitBucketBoundaries(.01, .1, 1, 10, 60, 300, 900, 3600, 4*3600, 24*3600, 7*24*3600, 30*24*3600)
	sizes   = metric.WithExplicitBucketBoundaries(512, 1<<10, 2<<10, 4<<10, 8<<10, 16<<10, 64<<10, 256<<10, 512<<10)
	counts  = metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
)

func (t *Telemetry) instrument(meter metric.Meter) error {
	t.meter = meter
	i := &t.metrics
	var faults []error
	counter := func(into *metric.Int64Counter, name, unit, description string) {
		var err error
		*into, err = meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		faults = append(faults, err)
	}
	histogram := func(into *metric.Float64Histogram, name, description string, boundaries metric.HistogramOption) {
		var err error
		*into, err = meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), boundaries)
		faults = append(faults, err)
	}
	amount := func(into *metric.Int64Histogram, name, unit, description string, boundaries metric.HistogramOption) {
		var err error
		*into, err = meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description), boundaries)
		faults = append(faults, err)
	}
	counter(&i.started, "agentd.runs.started", "{run}", "Runs that began.")
	counter(&i.finished, "agentd.runs.finished", "{run}", "Runs that ended, by reason.")
	counter(&i.suspensions, "agentd.runs.suspended", "{suspension}", "How often runs were suspended.")
	counter(&i.turns, "agentd.turns", "{turn}", "Model calls that runs accepted.")
	counter(&i.guarded, "agentd.guards", "{hit}", "What guards of calls did, by guard.")
	counter(&i.judged, "agentd.answers.judged", "{reply}", "Replies that were not taken for an answer, by judge.")
	counter(&i.chosen, "agentd.tools.chosen", "{choice}", "Choices of the tools that a model is offered, by how they were made.")
	counter(&i.takeovers, "agentd.takeovers", "{takeover}", "Runs taken over because their worker died or hung.")
	counter(&i.redelivered, "agentd.redeliveries", "{message}", "Messages that were delivered again.")
	counter(&i.deadLetters, "agentd.dead_letters", "{message}", "Messages that nobody could handle, by reason.")
	histogram(&i.suspended, "agentd.run.suspended.duration", "How long runs that went on had been suspended.", waiting)
	histogram(&i.activation, "agentd.activation.duration", "How long a message was in hand.", slow)
	histogram(&i.store, "agentd.store.operation.duration", "Operations of the store of runs: append is a commit, barrier its confirmation.", quick)
	histogram(&i.publish, "messaging.client.operation.duration", "Publishing until the broker has confirmed.", quick)
	histogram(&i.model, "gen_ai.client.operation.duration", "Model calls, with their retries.", slow)
	histogram(&i.tools, "gen_ai.execute_tool.duration", "Tools that ran in the worker.", slow)
	histogram(&i.answers, "agentd.call.duration", "Service calls as runs see them: from the publishing of an attempt to its answer.", waiting)
	histogram(&i.calls, "agentd.service.call.duration", "Calls that a service of this program handled.", slow)
	amount(&i.tokens, "gen_ai.client.token.usage", "{token}", "Tokens that model calls used.", counts)
	amount(&i.prompts, "agentd.prompt.tokens", "{token}", "What the tokens of a model's window are for, by part.", counts)
	amount(&i.entrySize, "agentd.journal.entry.size", "By", "What a commit writes.", sizes)
	var err error
	i.busy, err = meter.Int64UpDownCounter("agentd.activations.active", metric.WithUnit("{activation}"),
		metric.WithDescription("Messages in hand."))
	return errors.Join(append(faults, err)...)
}

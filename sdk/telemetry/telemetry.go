// Package telemetry makes spans and metrics of the calls that a program's services handle, by OpenTelemetry, and exports them as
// the standard OTEL_* variables say: docs/operations.md. It is a package of its own because the exporters are larger than the rest
// of such a program.
//
//	shown, err := telemetry.Start(ctx, slog.Default())
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer shown.Close()
//	err = service.Server{Observer: shown}.Run(ctx, weather)
package telemetry

import (
	"context"
	"log/slog"

	"agentd/internal/telemetry"
	"agentd/sdk/service"
	"agentd/sdk/wire"
)

// Telemetry records what services do. It costs nothing where the environment turns everything off. Safe for concurrent use.
type Telemetry struct{ shown *telemetry.Telemetry }

var _ service.Observer = Telemetry{}

// Start sets telemetry up as the environment says. logger is told what could not be exported; nil is nobody. The error is what
// of the environment cannot be used, with sdk.CodeConfig.
func Start(ctx context.Context, logger *slog.Logger) (Telemetry, error) {
	shown, err := telemetry.Start(ctx, telemetry.Options{Logger: logger})
	return Telemetry{shown}, err
}

// Delivered implements service.Observer.
func (t Telemetry) Delivered(ctx context.Context, consumer string, times int) {
	t.shown.Delivered(ctx, consumer, times)
}

// Serve implements service.Observer: each call is a span below the caller's, and the handler's context has it.
func (t Telemetry) Serve(ctx context.Context, call *wire.Event) (context.Context, string, func(context.Context, *wire.Event)) {
	return t.shown.Serve(ctx, call)
}

// Close exports what is left, for 5 s at most.
func (t Telemetry) Close() error { return t.shown.Close() }

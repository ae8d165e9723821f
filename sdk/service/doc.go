// Package service serves contracts over NATS: typed handlers for the calls of agents.
//
//	func main() {
//		weather, err := service.FromFile("weather.yaml")
//		if err != nil {
//			log.Fatal(err)
//		}
//		service.Handle(weather, func(ctx context.Context, call service.Call, in Place) (Forecast, error) {
//			return forecast(ctx, in.City)
//		})
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//		defer stop()
//		if err := service.Run(ctx, weather); err != nil {
//			log.Fatal(err)
//		}
//	}
//
// A call is delivered at least once: after a crash, or when an acknowledgement got lost, the same call comes again. A
// handler with effects of its own makes them once for each Call.IdempotencyKey. The caller sees one answer all the same:
// the first that the broker stored.
//
// What a handler never sees: data that violates the contract, which is answered with every fault; defaults that were
// left out, which are filled in; how and where to answer. docs/services.md shows the same without this package.
package service

// Command traveldesk answers the calls of the travel desk: four contract services in one program. They could be four
// programs in four languages; all that agentd knows of them are the contracts.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"agentd/sdk/service"
	"agentd/sdk/telemetry"
)

func main() {
	log.SetFlags(0)
	slog.SetLogLoggerLevel(slog.LevelWarn)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		log.Fatal("traveldesk: ", err)
	}
}

// serve serves on NATS_URL, else on a running `agentd dev`, and shows the calls as the OTEL_* variables say.
func serve(ctx context.Context) (err error) {
	services, err := travelServices()
	if err != nil {
		return err
	}
	shown, err := telemetry.Start(ctx, slog.Default())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shown.Close()) }()
	return service.Server{Observer: shown}.Run(ctx, services...)
}

func travelServices() ([]*service.Service, error) {
	flights, err1 := load("flights", searchFlights)
	hotels, err2 := load("hotels", searchHotels)
	weather, err3 := load("weather", forecast)
	bookings, err4 := load("bookings", (&bookings{made: map[string]booking{}}).book)
	return []*service.Service{flights, hotels, weather, bookings}, errors.Join(err1, err2, err3, err4)
}

// show prints what a service does.
func show(call service.Call, format string, args ...any) {
	fmt.Printf("service   %s: %s\n", call.Event.Type, fmt.Sprintf(format, args...))
}

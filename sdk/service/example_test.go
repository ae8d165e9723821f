package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/service"
	"agentd/sdk/wire"
)

const weatherContract = `
uri: "#/weather/forecast"
type: weather.forecast
versions:
  1.0.0:
    accepts: {type: object, required: [city], properties: {city: {type: string}, days: {type: integer, default: 1, maximum: 7}}}
    emits:
      weather.forecast.done: {type: object, required: [text], properties: {text: {type: string}}}
`

type Place struct {
	City string `json:"city"`
	Days int    `json:"days"`
}

type Forecast struct {
	Text string `json:"text"`
}

// A program of its own ends with service.Run(ctx, weather) instead of the calls.
func Example() {
	weather, err := service.Parse("weather.yaml", []byte(weatherContract))
	if err != nil {
		fmt.Println(err)
		return
	}
	service.Handle(weather, func(_ context.Context, _ service.Call, in Place) (Forecast, error) {
		if in.City == "Atlantis" {
			return Forecast{}, sdk.Errorf(sdk.CodeTool, "the weather is unknown in %s", in.City)
		}
		return Forecast{Text: fmt.Sprintf("sunny in %s for %d d", in.City, in.Days)}, nil
	})
	err = calls(weather, `{"city":"Bern"}`, `{"city":"Atlantis"}`, `{"city":7,"days":9}`)
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// weather.forecast.done: sunny in Bern for 1 d
	// sys.weather.forecast.error: the weather is unknown in Atlantis
	// sys.weather.forecast.error: the data does not fit #/weather/forecast/1.0.0
	//   $.city: expected string, got number 7
	//   $.days: expected at most 7, got number 9
}

// calls runs the service on an embedded server, calls it with each data and prints the answers.
func calls(s *service.Service, data ...string) (err error) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := embedded.Start(embedded.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := broker.Connect(ctx, broker.ConnectOptions{InProcess: server, Subjects: wire.DefaultSubjects()})
	if err != nil {
		cancel()
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	contractType := s.Contract().Type
	_, err = provision.Apply(ctx, conn, provision.Plan{Services: []provision.Service{{Type: contractType}}})
	if err != nil {
		cancel()
		return err
	}
	done := make(chan error, 1)
	go func() { done <- service.Server{InProcess: server, Logger: slog.New(slog.DiscardHandler)}.Run(ctx, s) }()
	for i, d := range data {
		err = errors.Join(err, call(ctx, conn, contractType, i, d))
	}
	cancel()
	return errors.Join(err, <-done)
}

// call publishes a call like an agent does, and prints the answer.
func call(ctx context.Context, conn *broker.Conn, contractType string, i int, data string) error {
	run := wire.NewRunKey("trip-7")
	id := wire.CallID(run, wire.InitToken("example", "1"), 1, i, "forecast", []byte(data))
	at := wire.CallAddress{
		Domain: wire.LocalDomain, Type: wire.NameToken(contractType), Agent: "travel_desk", Run: run, Call: id,
	}
	reply := conn.Subjects().Reply(at)
	err := conn.Publish(ctx, conn.Subjects().Call(at), wire.Event{
		ID: id, Source: reply, Type: contractType, Subject: "trip-7", DataSchema: "#/weather/forecast/1.0.0",
		Data: json.RawMessage(data),
	})
	if err != nil {
		return err
	}
	var failure error
	err = conn.Watch(ctx, streams.In, []string{reply}, func(d broker.Delivery) bool {
		var event wire.Event
		var answer struct {
			Text    string      `json:"text"`
			Message string      `json:"errorMessage"`
			Faults  []sdk.Fault `json:"faults"`
		}
		if event, failure = wire.DecodeEvent(d.Headers(), d.Data()); failure == nil {
			failure = json.Unmarshal(event.Data, &answer)
		}
		fmt.Printf("%s: %s%s\n", event.Type, answer.Text, answer.Message)
		for _, f := range answer.Faults {
			fmt.Println(" ", f)
		}
		return false
	})
	return errors.Join(err, failure)
}

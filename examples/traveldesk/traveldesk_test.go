package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
)

// desk is an agent with the services as tools, like the one in agentd.yaml.
func desk(services []*service.Service) sdk.Agent {
	spec := sdk.AgentSpec{
		Name: "travel.desk", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "script", Name: "script"},
		Contract: sdk.Contract{URI: "#/travel/desk", Type: "travel.desk", Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}}}`),
			Emits:   map[string]json.RawMessage{"travel.desk.done": json.RawMessage(`{"type":"object"}`)},
		}}},
		Builtin: []string{"ask_question"},
	}
	for _, s := range services {
		spec.Services = append(spec.Services, sdk.ServiceTool{Contract: s.Contract(), Version: "1.0.0"})
	}
	return sdk.Agent{Spec: spec}
}

// start runs the desk, with a scripted model, and the services until the test ends.
func start(t *testing.T, replies ...sdk.ModelReply) *sdktest.Harness {
	t.Helper()
	services, err := travelServices()
	if err != nil {
		t.Fatal(err)
	}
	h := sdktest.Start(t, sdktest.Options{Agents: []sdk.Agent{desk(services)}, Model: sdktest.Script(replies...)})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Server{Conn: h.Conn()}.Run(ctx, services...) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// results are what the services answered, by the tool's name.
func results(h *sdktest.Harness, r sdktest.Run) map[string]string {
	found := map[string]string{}
	for _, m := range h.Messages(r) {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolResult {
				found[c.Tool] = c.Text
			}
		}
	}
	return found
}

func TestTravelDesk_BooksWhatTheTravellerAgreedTo(t *testing.T) {
	h := start(t,
		sdktest.Ask(
			sdktest.Tool("flights_search", map[string]any{"from": "BER", "to": "LIS", "depart": "2026-12-04", "return": "2026-12-06"}),
			sdktest.Tool("hotels_search", map[string]any{"city": "Lisbon", "nights": 2}),
			sdktest.Tool("weather_forecast", map[string]any{"city": "Lisbon", "day": "2026-12-04"}),
		),
		sdktest.Ask(sdktest.Tool("ask_question", map[string]any{"question": "Book it?"})),
		sdktest.Ask(sdktest.Tool("bookings_book", map[string]any{"flight": "TP-533", "hotel": "casa-do-rio", "nights": 2})),
		sdktest.Say(`{"reference": "TRIP-TP-533-casa-do-rio"}`),
	)
	r := h.Run("travel.desk", map[string]any{"message": "Lisbon"})
	h.Call(sdk.TypeQuestion).Answer("agentd.question.answered", map[string]any{"answer": "yes"})
	if done := h.Done(r); done.Type != "travel.desk.done" {
		t.Errorf("the run ended with %s %s", done.Type, done.Data)
	}
	for tool, want := range map[string]string{
		"flights_search": `"id":"TP-533"`, "hotels_search": `"total_eur":210`, "weather_forecast": `"celsius":17`,
		"bookings_book": `"total_eur":399`,
	} {
		if got := results(h, r)[tool]; !strings.Contains(got, want) {
			t.Errorf("%s answered %s; want %s in it", tool, got, want)
		}
	}
}

func TestTravelDesk_RefusesToBookWhatDoesNotExist(t *testing.T) {
	h := start(t,
		sdktest.Ask(sdktest.Tool("bookings_book", map[string]any{"flight": "XX-1", "hotel": "casa-do-rio", "nights": 2})),
		sdktest.Say(`{}`),
	)
	r := h.Run("travel.desk", map[string]any{"message": "Lisbon"})
	h.Done(r)
	if got := results(h, r)["bookings_book"]; !strings.Contains(got, "search again") {
		t.Errorf("the model is told %s", got)
	}
}

func TestBook_BooksOnceForACall(t *testing.T) {
	b := &bookings{made: map[string]booking{}}
	call := service.Call{IdempotencyKey: "c1"}
	wanted := order{Flight: "TP-533", Hotel: "casa-do-rio", Nights: 2}
	first, err := b.book(t.Context(), call, wanted)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.book(t.Context(), call, wanted)
	if err != nil || again != first || len(b.made) != 1 {
		t.Errorf("the same call again gives %v, %v and %d bookings", again, err, len(b.made))
	}
}

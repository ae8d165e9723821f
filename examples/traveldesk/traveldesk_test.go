package main

import (
	"context"
	"strings"
	"testing"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
)

// start runs the agent of agentd.yaml, with a scripted model, and the services until the test ends.
func start(t *testing.T, replies ...sdk.ModelReply) *sdktest.Harness {
	t.Helper()
	services, err := travelServices()
	if err != nil {
		t.Fatal(err)
	}
	h := sdktest.Start(t, sdktest.Options{File: "agentd.yaml", Model: sdktest.Script(replies...)})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Server{InProcess: h}.Run(ctx, services...) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// results are what the services answered, by the tool's name.
func results(h *sdktest.Harness, r client.Run) map[string]string {
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
			sdktest.Tool("search_flights", map[string]any{"from": "BER", "to": "LIS", "depart": "2026-12-04", "return": "2026-12-06"}),
			sdktest.Tool("search_hotels", map[string]any{"city": "Lisbon", "nights": 2}),
			sdktest.Tool("weather_forecast", map[string]any{"city": "Lisbon", "day": "2026-12-04"}),
		),
		sdktest.Ask(sdktest.Tool("ask_question", map[string]any{"question": "Book it?"})),
		sdktest.Ask(sdktest.Tool("book_trip", map[string]any{"flight": "TP-533", "hotel": "casa-do-rio", "nights": 2})),
		sdktest.Say(`{"summary": "Two nights in Lisbon.", "reference": "TRIP-TP-533-casa-do-rio", "total_eur": 399}`),
	)
	r := h.Run("travel.desk", map[string]string{"message": "Lisbon"})
	h.Answer(r, client.Reply{Text: "yes"})
	if done := h.Wait(r); done.Type != "travel.desk.done" {
		t.Errorf("the run ended with %s %s", done.Type, done.Data)
	}
	for tool, want := range map[string]string{
		"search_flights": `"id":"TP-533"`, "search_hotels": `"total_eur":210`, "weather_forecast": `"celsius":17`,
		"book_trip": `"total_eur":399`,
	} {
		if got := results(h, r)[tool]; !strings.Contains(got, want) {
			t.Errorf("%s answered %s; want %s in it", tool, got, want)
		}
	}
}

func TestTravelDesk_RefusesToBookWhatDoesNotExist(t *testing.T) {
	h := start(t,
		sdktest.Ask(sdktest.Tool("book_trip", map[string]any{"flight": "XX-1", "hotel": "casa-do-rio", "nights": 2})),
		sdktest.Say(`{"summary": "That flight does not exist.", "reference": "", "total_eur": 0}`),
	)
	r := h.Run("travel.desk", map[string]string{"message": "Lisbon"})
	h.Wait(r)
	if got := results(h, r)["book_trip"]; !strings.Contains(got, "search again") {
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

package pipeline

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/config"
	"agentd/internal/harness"
	"agentd/sdk"
)

// The planner of examples/traveldesk plans with agentd mock-llm, is edited by a person, loses its worker while it waits for the bookings of a list,
// and finishes with each made once.
func TestPlanExample_IsEditedLosesAWorkerAndFinishes(t *testing.T) {
	t.Parallel()
	const folder = "../../examples/traveldesk/"
	data, err := os.ReadFile(folder + "planner_script.yaml")
	if err != nil {
		t.Fatal(err)
	}
	model := scripted(t, "planner_script.yaml", data)
	cfg, err := config.Load(folder + "planner.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: cfg.Agents[0]}}, Model: model})
	run := h.Run("travel.planner", map[string]string{"message": "Two groups want to spend a weekend in Lisbon"})
	request := h.Call(sdk.TypePlanReview)
	var asked sdk.PermissionRequest
	raw, err := json.Marshal(request.Data())
	if err == nil {
		err = json.Unmarshal(raw, &asked)
	}
	if err != nil {
		t.Fatal(err)
	}
	edited := `{"steps":[{"step":1,"tool":"search_hotels","text":"Search hotels in Lisbon for 2 nights"},
		{"step":2,"tool":"weather_forecast","text":"Get the weather in Lisbon on 2026-12-04"},
		{"step":3,"tool":"book_trip","each":"step1.hotels.filter(h, h.total_eur < 300.0)","text":"Book flight TP-533 and 2 nights in the hotel"},
		{"step":4,"tool":"search_flights","when":"step2.celsius < 10.0","text":"Search flights from BER to a warmer place"}]}`
	h.PublishAs("ann", request, decided(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(edited)}))
	h.Call("hotels.search").Answer("hotels.found", map[string]any{"hotels": []map[string]any{
		{"id": "casa-do-rio", "name": "Casa do Rio", "total_eur": 210},
		{"id": "grand-avenida", "name": "Grand Avenida", "total_eur": 396},
		{"id": "pensao-sol", "name": "Pensao Sol", "total_eur": 120},
	}})
	h.Call("weather.forecast").Answer("weather.forecast.done", map[string]any{"sky": "sunny", "celsius": 17})
	bookings := []*harness.Call{h.Call("bookings.book"), h.Call("bookings.book")}
	h.StopWorkers()
	bookings[0].Answer("bookings.booked", map[string]any{"reference": "TRIP-1", "total_eur": 399})
	h.Restart()
	bookings[1].Answer("bookings.booked", map[string]any{"reference": "TRIP-2", "total_eur": 309})
	const response = `{"response":"All groups fly with TP-533, and each stays at the hotel that was booked for it."}`
	if done := h.Done(run); done.Type != "travel.planner.done" || string(done.Data) != response {
		t.Errorf("the run ended with %s %s", done.Type, done.Data)
	}
	h.NoCall("bookings.book")
	want := "1 done 0/0: \n2 done 0/0: \n3 done 2/2: \n4 skipped 0/0: its condition does not hold: step2.celsius < 10.0\n"
	if diff := cmp.Diff(want, planned(h, run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}

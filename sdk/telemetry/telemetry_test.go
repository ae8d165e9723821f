package telemetry_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"agentd/sdk/sdktest"
	"agentd/sdk/service"
	"agentd/sdk/telemetry"
)

// What a service does leaves the program as spans and metrics, where the environment says so.
func TestServer_ShowsItsCalls(t *testing.T) {
	var mu sync.Mutex
	sent := map[string]string{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent[r.URL.Path] += string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	shown, err := telemetry.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	bills, err := service.FromFile("../../test/outside/contracts/bills.yaml")
	if err != nil {
		t.Fatal(err)
	}
	service.Handle(bills, func(context.Context, service.Call, json.RawMessage) (map[string]string, error) {
		return map[string]string{"receipt": "R-12"}, nil
	})
	h := sdktest.Start(t, sdktest.Options{
		File:  "../../test/outside/agentd.yaml",
		Model: sdktest.Script(sdktest.Ask(sdktest.Tool("pay_bill", map[string]int{"euros": 12})), sdktest.Say("Paid.")),
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Server{InProcess: h, Observer: shown}.Run(ctx, bills) }()
	run := h.Run("clerk", map[string]string{"message": "Pay the bills."})
	h.Approve(run, "pay_bill", "ann")
	h.Wait(run)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := shown.Close(); err != nil { // which sends what is left
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(sent["/v1/traces"], "process bills.pay") || !strings.Contains(sent["/v1/metrics"], "agentd.service.call.duration") {
		t.Errorf("the collector got traces %q and metrics %q", sent["/v1/traces"], sent["/v1/metrics"])
	}
}

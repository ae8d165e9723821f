// Package sdktest tests agents and services as they are deployed: an embedded NATS server without a port, real workers, and a
// scripted model in the place of the real one.
//
//	h := sdktest.Start(t, sdktest.Options{File: "agentd.yaml", Model: sdktest.Script(…)})
//	run := h.Run("travel.desk", map[string]any{"message": "Lisbon"})
//	h.Call("flights.search").Answer("flights.found", …)
//	h.Approve(run, "book_trip", "ann")
//	result := h.Wait(run)
//
// Nothing sleeps. What does not happen within Options.Patience fails the test, with the run's state, what it waits for, and the
// decisions that it refused.
package sdktest

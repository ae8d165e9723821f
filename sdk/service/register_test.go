package service

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"agentd/internal/broker/streams"
	"agentd/sdk"
)

// listed are the versions of a contract in the registry; those that were removed have a "-" before them.
func (w *world) listed(contractType string) string {
	w.t.Helper()
	state, err := w.conn.Registry().Read(w.context())
	if err != nil {
		w.t.Fatal(err)
	}
	var versions []string
	for _, p := range state.List() {
		switch {
		case p.Contract.Type != contractType:
		case p.Removed:
			versions = append(versions, "-"+p.Version)
		default:
			versions = append(versions, p.Version)
		}
	}
	return strings.Join(versions, " ")
}

func forecasts(t *testing.T, options ...Option) *Service {
	t.Helper()
	s, err := New(forecastContract, options...)
	if err != nil {
		t.Fatal(err)
	}
	Handle(s, sunny)
	return s
}

// serves runs a service until it answers a call.
func (w *world) serves(s *Service) {
	w.t.Helper()
	w.run(Server{conn: w.conn, Logger: w.log.logger()}, s)
	w.wantText(w.call(s, `{"city":"Bern"}`), "sunny in Bern")
}

func TestRegister_PublishesTheContract(t *testing.T) {
	t.Parallel()
	s := forecasts(t)
	w := start(t, s)
	w.serves(s)
	if got := w.listed(forecastType); got != "1.0.0" {
		t.Errorf("the registry has %q", got)
	}
}

func TestRegister_CanBeTurnedOff(t *testing.T) {
	t.Parallel()
	s := forecasts(t, Unlisted())
	w := start(t, s)
	w.serves(s)
	if got := w.listed(forecastType); got != "" {
		t.Errorf("the registry has %q", got)
	}
}

func TestRegister_OtherContentKeepsTheServiceFromStarting(t *testing.T) {
	t.Parallel()
	s := forecasts(t)
	w := start(t, s)
	other := forecastContract
	other.Versions = map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(`{"type":"object"}`), Emits: forecastContract.Versions["1.0.0"].Emits,
	}}
	if _, err := w.conn.Registry().Publish(w.context(), other, "1.0.0"); err != nil {
		t.Fatal(err)
	}
	err := Server{conn: w.conn, Logger: w.log.logger()}.Run(w.context(), s)
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) || !strings.Contains(err.Error(), "1.0.0 accepts $.city") {
		t.Errorf("Run returns %v", err)
	}
}

func TestRegister_WhatWasRemovedStaysRemoved(t *testing.T) {
	t.Parallel()
	s := forecasts(t)
	w := start(t, s)
	registry := w.conn.Registry()
	if _, err := registry.Publish(w.context(), forecastContract, "1.0.0"); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Remove(w.context(), forecastType, "1.0.0"); err != nil {
		t.Fatal(err)
	}
	w.serves(s)
	if got := w.listed(forecastType); got != "-1.0.0" {
		t.Errorf("the registry has %q", got)
	}
	if !w.log.contains("was removed from the registry and stays so") {
		t.Error("nobody is told")
	}
}

func TestRegister_WithoutARegistryTheServiceServesAllTheSame(t *testing.T) {
	t.Parallel()
	s := forecasts(t)
	w := start(t, s)
	if err := w.conn.JetStream().DeleteStream(w.context(), "KV_"+streams.RegistryBucket(w.conn.Subjects())); err != nil {
		t.Fatal(err)
	}
	w.serves(s)
	if !w.log.contains("the broker has no registry of contracts (bucket AGENTD_CONTRACTS); run: agentd provision") {
		t.Error("nobody is told")
	}
}

func TestRegister_ConflictThatIsFoundLaterEndsTheService(t *testing.T) {
	t.Parallel()
	s := forecasts(t)
	w := start(t, s)
	conflict := errors.New("other content")
	bound, err := Server{Logger: w.log.logger()}.bind([]*Service{s})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bound {
		b.conn = w.conn
	}
	later := func(context.Context) error { return conflict }
	if err := serveUntil(w.context(), bound, later); !errors.Is(err, conflict) {
		t.Errorf("serving ends with %v", err)
	}
}

package broker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
	"agentd/internal/contracts"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// booking is a contract with one version, whose input has a property of the given name.
func booking(version, property string) sdk.Contract {
	return sdk.Contract{
		URI: "#/airline/book", Type: "airline.book", Description: "Books.",
		Versions: map[string]sdk.ContractVersion{version: {
			Accepts: json.RawMessage(`{"type":"object","properties":{"` + property + `":{"type":"string"}}}`),
			Emits:   map[string]json.RawMessage{"airline.booked": json.RawMessage(`{"type":"object"}`)},
		}},
	}
}

func publishVersion(t *testing.T, r Registry, c sdk.Contract, version string) Publication {
	t.Helper()
	outcome, err := r.Publish(testContext(t), c, version)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

// states are the versions in a registry, with a "-" before removed ones.
func states(r *contracts.Registry) string {
	var all []string
	for _, p := range r.List() {
		if p.Removed {
			p.Version = "-" + p.Version
		}
		all = append(all, p.Version)
	}
	return strings.Join(all, " ")
}

func TestRegistry_AVersionIsCreatedOnce(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	r := c.Registry()
	if got := publishVersion(t, r, booking("1.0.0", "flight"), "1.0.0"); got != PublicationNew {
		t.Errorf("at first: %s", got)
	}
	same := booking("1.0.0", "flight")
	same.Description = "Another text."
	if got := publishVersion(t, r, same, "1.0.0"); got != PublicationSame {
		t.Errorf("again: %s", got)
	}
	for name, publish := range map[string]func(context.Context, sdk.Contract, string) (Publication, error){"publish": r.Publish, "restore": r.Restore} {
		_, err := publish(testContext(t), booking("1.0.0", "train"), "1.0.0")
		if !isCode(err, sdk.CodeConflict) || !strings.Contains(err.Error(), "1.0.0 accepts $.flight") {
			t.Errorf("%s other content: %v", name, err)
		}
	}
	m, err := c.last(testContext(t), "KV_AGENTD_CONTRACTS", "$KV.AGENTD_CONTRACTS.airline_book.1_0_0")
	want, errEncode := contracts.EncodeVersion(booking("1.0.0", "flight"), "1.0.0")
	if err != nil || errEncode != nil || string(m.Data) != string(want) {
		t.Errorf("stored is %s, %v; want %s", m.Data, err, want)
	}
}

func TestRegistry_ARemovedVersionIsToldFromOneThatNeverWas(t *testing.T) {
	t.Parallel()
	r := provisioned(t).Registry()
	one := booking("1.0.0", "flight")
	publishVersion(t, r, one, "1.0.0")
	for i, want := range []bool{true, false} {
		if found, err := r.Remove(testContext(t), "airline.book", "1.0.0"); err != nil || found != want {
			t.Errorf("removal %d: %t, %v", i, found, err)
		}
	}
	if found, err := r.Remove(testContext(t), "airline.book", "2.0.0"); err != nil || found {
		t.Errorf("removal of a version that never was: %t, %v", found, err)
	}
	state, err := r.Read(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := states(state); got != "-1.0.0" {
		t.Errorf("the registry has %q", got)
	}
	if got := publishVersion(t, r, one, "1.0.0"); got != PublicationRemoved {
		t.Errorf("published without restoring: %s", got)
	}
	for i, want := range []Publication{PublicationNew, PublicationSame} {
		if got, err := r.Restore(testContext(t), one, "1.0.0"); err != nil || got != want {
			t.Errorf("restore %d: %s, %v; want %s", i, got, err, want)
		}
	}
}

func TestRegistry_IsFollowed(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	r := c.Registry()
	ctx, stop := context.WithCancel(t.Context())
	seen, ended := make(chan string, 64), make(chan error, 1)
	go func() { ended <- r.Follow(ctx, func(state *contracts.Registry) { seen <- states(state) }) }()
	if got := receive(t, "the first state", seen); got != "" {
		t.Errorf("at first there is %q", got)
	}
	publishVersion(t, r, booking("1.0.0", "flight"), "1.0.0")
	// Who may publish there can write what they like. What was published first stays, and what is none is passed over.
	for _, record := range []string{`{"uri":"#/airline/book","type":"airline.book","versions":{"1.0.0":{"accepts":{},"emits":{}}}}`, `{`} {
		if _, err := c.js.Publish(testContext(t), "$KV.AGENTD_CONTRACTS.airline_book.1_0_0", []byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Remove(testContext(t), "airline.book", "1.0.0"); err != nil {
		t.Fatal(err)
	}
	publishVersion(t, r, booking("2.0.0", "train"), "2.0.0")
	for receive(t, "the last state", seen) != "-1.0.0 2.0.0" {
	}
	state, err := r.Read(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := state.Version("airline.book", "1.0.0")
	if diff := cmp.Diff(booking("1.0.0", "flight").URI, p.Contract.URI); diff != "" || !p.Same(booking("1.0.0", "flight")) {
		t.Errorf("the content became %+v", p.Contract)
	}
	stop()
	if err := receive(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("following ends with %v", err)
	}
}

func TestRegistry_ThatDoesNotExistIsNeverMadeSilently(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	_, err := c.Registry().Read(testContext(t))
	if !isCode(err, sdk.CodeUnavailable) || !strings.Contains(err.Error(), "run: agentd provision") {
		t.Errorf("reading: %v", err)
	}
	_, err = c.Registry().Publish(testContext(t), booking("1.0.0", "flight"), "1.0.0")
	if !isCode(err, sdk.CodeUnavailable) || !strings.Contains(err.Error(), "run: agentd provision") {
		t.Errorf("publishing: %v", err)
	}
	if _, err := c.js.Stream(testContext(t), "KV_AGENTD_CONTRACTS"); err != jetstream.ErrStreamNotFound { //nolint:errorlint // the client's own
		t.Errorf("the stream: %v", err)
	}
}

func TestOpenCalls_AreThoseWithoutAnswerVoidOrPassedDeadline(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	const ref = "#/airline/book/1.0.0"
	run := wire.NewRunKey("trip")
	address := func(id string) wire.CallAddress {
		return wire.CallAddress{Domain: "airline", Type: "airline_book", Agent: "travel_desk", Run: run, Call: id}
	}
	call := func(index int) string { return wire.CallID(run, "init", 1, index, "book", []byte(`{}`)) }
	publish := func(subject, id, schema string, due time.Duration) {
		t.Helper()
		e := wire.Event{ID: id, Source: "s", Type: "airline.book", Subject: "trip", Agent: "travel.desk", DataSchema: schema, Data: []byte(`{}`)}
		if due != 0 {
			e.Extensions = map[string]any{wire.ExpiryTime: time.Now().Add(due).UTC().Format(time.RFC3339)}
		}
		if err := c.Publish(testContext(t), subject, e); err != nil {
			t.Fatal(err)
		}
	}
	ids := make([]string, 6)
	for i := range ids {
		ids[i] = call(i)
		due, schema := time.Hour, ref
		switch i {
		case 3:
			due = -time.Hour
		case 4:
			schema = "#/airline/book/2.0.0"
		}
		publish(c.subjects.Call(address(ids[i])), ids[i], schema, due)
	}
	publish(c.subjects.Reply(address(ids[1])), "answer", "", 0)
	publish(c.subjects.Void(address(ids[2])), ids[2]+"-void", "", 0)
	// Its first attempt was answered with an error that may pass; the second is open.
	publish(c.subjects.Reply(address(ids[5])), "refusal", "", 0)
	publish(c.subjects.Call(address(ids[5]+"-r2")), ids[5]+"-r2", ref, time.Hour)
	open, err := c.OpenCalls(testContext(t), "airline.book", ref)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for _, o := range open {
		got = append(got, []string{o.Call, o.Event.ID, c.subjects.Reply(o.Address)})
	}
	want := [][]string{
		{ids[0], ids[0], c.subjects.Reply(address(ids[0]))},
		{ids[5], ids[5] + "-r2", c.subjects.Reply(address(ids[5] + "-r2"))},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("open calls (-want +got):\n%s", diff)
	}
}

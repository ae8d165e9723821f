// Command airline is everything around the agent in recorded conversations: the 14 services of the airline and the
// customer, or with -approve whoever allows calls that need permission. It answers each call as the record does. Nothing is remembered between calls: the record follows from the
// run's subject, which ends in airline-<task>-<trial>, and the place in it from the step in the call's id, because every
// assistant message of a record opens one round.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/e2e/recorded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir := flag.String("transcripts", "", "folder of transcripts.jsonl")
	tools := flag.String("tools", "", "the tools.json of the airline")
	approve := flag.Bool("approve", false, "allow every call that needs permission, and do nothing else")
	flag.Parse()
	if err := serve(ctx, os.Getenv("NATS_URL"), *dir, *tools, *approve); err != nil {
		fmt.Fprintln(os.Stderr, "airline:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, url, dir, tools string, approve bool) error {
	records, err := recorded.LoadTranscripts(dir)
	if err != nil {
		return err
	}
	names, err := recorded.LoadToolNames(tools)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	conn, err := broker.Connect(ctx, broker.ConnectOptions{
		URL: url, Name: "airline", Subjects: wire.DefaultSubjects(), Logger: log, Wait: true,
	})
	if err != nil {
		return err
	}
	a := &airline{conn: conn, log: log, records: map[string]recorded.Record{}}
	for _, r := range records {
		a.records[r.Run()] = r
	}
	consumers := []streams.ConsumerRef{streams.ServiceConsumer(sdk.HumanDomain, sdk.TypeConversationTurn)}
	for _, name := range names {
		consumers = append(consumers, streams.ServiceConsumer("airline", "airline."+name))
	}
	if approve {
		consumers = []streams.ConsumerRef{streams.ServiceConsumer(sdk.HumanDomain, sdk.TypePermissionRequest)}
	}
	conn.Consume(ctx, broker.ConsumeOptions{Consumers: consumers, Handle: a.handle})
	return conn.Close()
}

type airline struct {
	conn    *broker.Conn
	log     *slog.Logger
	records map[string]recorded.Record
}

// handle answers one call.
func (a *airline) handle(ctx context.Context, d broker.Delivery) {
	err := a.answer(ctx, d)
	if err == nil {
		err = d.Ack()
	}
	if err != nil {
		a.log.Error("call is not answered", "subject", d.Subject(), "error", err)
	}
}

func (a *airline) answer(ctx context.Context, d broker.Delivery) error {
	reply, ok := a.conn.ReplySubject(d.Subject())
	if !ok {
		return nil // a void: nobody waits
	}
	call, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		return err
	}
	ref, ok := wire.ParseCallRef(call.ID)
	if !ok {
		return fmt.Errorf("%q is not a call id", call.ID)
	}
	var answered string
	var data any
	if call.Type == sdk.TypePermissionRequest {
		answered, data, err = allow(call)
	} else {
		answered, data, err = a.recorded(call, ref.Step)
	}
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return a.conn.Publish(ctx, reply, wire.Event{
		ID: "answer-" + call.ID, Source: call.Type, Type: answered, Subject: call.Subject, Time: call.Time,
		DataSchema: call.DataSchema, ParentID: call.ID, Data: encoded,
	})
}

// allow decides on a permission request.
func allow(call wire.Event) (eventType string, data any, err error) {
	var request sdk.PermissionRequest
	if err := json.Unmarshal(call.Data, &request); err != nil {
		return "", nil, fmt.Errorf("read permission request %s: %w", call.ID, err)
	}
	return sdk.TypePermissionDecided, sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: request.ArgsHash}, nil
}

// recorded is what follows the step-th assistant message of the run's record.
func (a *airline) recorded(call wire.Event, step int) (eventType string, data any, err error) {
	_, key, _ := strings.Cut(call.Subject, "airline-")
	record, ok := a.records["airline-"+key]
	if !ok {
		return "", nil, fmt.Errorf("run %q plays no record", call.Subject)
	}
	for i, m := range record.Messages {
		if m.Role != "assistant" {
			continue
		}
		if step--; step > 0 {
			continue
		}
		if i+1 >= len(record.Messages) {
			return "", nil, fmt.Errorf("record %s ends before the answer to %s", record.Run(), call.ID)
		}
		next := record.Messages[i+1]
		if next.Role == "user" {
			return sdk.TypeConversationAnswered, map[string]any{
				"message": next.Text, "end": strings.HasSuffix(strings.TrimSpace(next.Text), endMarker),
			}, nil
		}
		return call.Type + ".done", map[string]string{"result": next.Text}, nil
	}
	return "", nil, fmt.Errorf("record %s has no such step for %s", record.Run(), call.ID)
}

// endMarker is how the recorded customer says that the conversation is over.
const endMarker = "###STOP###"

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"agentd/internal/contracts"
	"agentd/sdk"
	"agentd/sdk/service"
	"agentd/sdk/wire"
)

// The test binary is a service, or a client, when one of these variables says which.
const (
	serviceVariable = "CONFORMANCE_TEST_SERVICE"
	clientVariable  = "CONFORMANCE_TEST_CLIENT"
)

func TestMain(m *testing.M) {
	var serve func(context.Context) error
	service, client := os.Getenv(serviceVariable), os.Getenv(clientVariable)
	switch {
	case service == "sdk":
		serve = serveSDK
	case service != "":
		serve = (&foreign{defect: service}).serve
	case client == "sdk":
		serve = serveClientSDK
	case client != "":
		serve = (&foreignClient{defect: client}).serve
	default:
		goleak.VerifyTestMain(m)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const weather = `{
  "uri": "#/weather/forecast", "type": "weather.forecast", "versions": {"1.0.0": {
    "accepts": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}},
    "emits": {"weather.forecast.done": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}
  }}}`

func weatherContract() sdk.Contract {
	c, err := contracts.Parse("weather.json", []byte(weather))
	if err != nil {
		panic(err)
	}
	return c
}

type place struct {
	City string `json:"city"`
}

type forecast struct {
	Text string `json:"text"`
}

// serveSDK serves weather with sdk/service.
func serveSDK(ctx context.Context) error {
	s, err := service.New(weatherContract())
	if err != nil {
		return err
	}
	service.Handle(s, func(ctx context.Context, _ service.Call, in place) (forecast, error) {
		switch in.City {
		case "Atlantis":
			return forecast{}, sdk.Errorf(sdk.CodeTool, "the weather is unknown in %s", in.City)
		case "Limbo":
			<-ctx.Done()
			return forecast{}, ctx.Err()
		case "Babel":
			return forecast{strings.Repeat("rain ", 1<<19)}, nil
		}
		return forecast{"sunny in " + in.City}, nil
	})
	return service.Run(ctx, s)
}

// foreign serves weather with a NATS client alone, as docs/services.md describes it, but for a defect.
type foreign struct {
	defect  string
	js      jetstream.JetStream
	version *contracts.Version
	handled atomic.Int64
	// working has what ends the calls that are worked on, voided the ids of those that nobody waits for.
	working, voided sync.Map
}

func (f *foreign) has(defect string) bool { return f.defect == defect }

func (f *foreign) serve(ctx context.Context) error {
	if f.has("exclusive") || f.has("exclusive-late") {
		lock, err := os.OpenFile(os.Getenv("CONFORMANCE_TEST_LOCK"), os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			if f.has("exclusive-late") {
				<-time.After(2 * time.Second) // it takes so long to start
			}
			return err
		}
		defer lock.Close()
	}
	var err error
	if f.version, err = contracts.CompileVersion(weatherContract(), "1.0.0"); err != nil {
		return err
	}
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond)}
	lost := make(chan struct{})
	switch {
	case f.has("no-reconnect"):
		options = []nats.Option{nats.NoReconnect()}
	case f.has("exits"):
		options = []nats.Option{nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(lost) })}
	case f.has("deaf"):
		ctx = context.Background()
	}
	nc, err := nats.Connect(os.Getenv("NATS_URL"), options...)
	if err != nil {
		return err
	}
	defer nc.Close()
	if f.js, err = jetstream.New(nc); err != nil {
		return err
	}
	consumer, err := f.js.Consumer(ctx, "AGENTD_OUT", "svc_local_weather_forecast")
	if err != nil {
		return err
	}
	var working sync.WaitGroup
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		if f.has("acks-ahead") {
			_ = m.Ack()
			if f.handled.Add(1) == 1 { // the others are never come to
				f.handle(m)
			}
			return
		}
		working.Go(func() { f.handle(m) })
	}, jetstream.PullMaxMessages(16))
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		consuming.Stop()
		<-consuming.Closed()
		working.Wait()
	case <-lost:
		return errors.New("the server is away")
	}
	return nil
}

func (f *foreign) handle(m jetstream.Msg) {
	root, rest, _ := strings.Cut(m.Subject(), ".")
	kind, rest, _ := strings.Cut(rest, ".")
	id := rest[strings.LastIndexByte(rest, '.')+1:]
	if kind == "void" && !f.has("answers-voids") {
		f.voided.Store(id, true)
		if end, ok := f.working.Load(id); ok && !f.has("works-on") {
			end.(context.CancelFunc)()
		}
		if !f.has("keeps-voids") {
			_ = m.Ack()
		}
		return
	}
	event, err := wire.DecodeEvent(m.Headers(), m.Data())
	_, isID := wire.ParseCallRef(event.ID)
	switch {
	case err != nil && f.has("crashes"):
		os.Exit(7)
	case err != nil && f.has("nak"):
		_ = m.Nak()
		return
	case err != nil, !isID && kind != "void", event.ID != id && !f.has("any-id") && kind != "void",
		!strings.HasSuffix(rest, wire.NewRunKey(event.Subject).String()+"."+id) && !f.has("any-run"):
		_ = m.Ack()
		return
	case f.has("needs-access") && event.AccessControl == "",
		f.has("knows-all") && len(event.Extensions) > 1,
		f.has("short-ids") && len(event.ID) > len("c1-0-")+26,
		f.has("keeps-overdue") && due(event).Before(time.Now()):
		return // for ever
	}
	if f.has("acks-first") {
		_ = m.Ack()
	}
	if f.has("loses") && f.handled.Add(1)%7 == 0 {
		_ = m.Ack()
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), due(event))
	defer cancel()
	if _, working := f.working.LoadOrStore(event.ID, cancel); working {
		return
	}
	defer f.working.Delete(event.ID)
	if _, voided := f.voided.Load(event.ID); voided && !f.has("works-on") {
		cancel()
	}
	if !f.has("no-heartbeat") {
		beat := time.AfterFunc(5*time.Second, func() { _ = m.InProgress() })
		defer beat.Stop()
	}
	answer := f.answer(ctx, event)
	if errors.Is(ctx.Err(), context.Canceled) {
		_ = m.Ack()
		return
	}
	data, err := answer.Encode()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	if f.has("responds") {
		_ = f.js.Conn().Publish(m.Reply(), data)
		return
	}
	reply := root + ".in." + rest
	if f.has("redirects") {
		reply = event.Source
	}
	expect := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(0)}
	if f.has("appends") || f.has("counts") || f.has("answers-voids") {
		expect = nil
	}
	for again := !f.has("silent"); again; again = f.has("keeps-refused") && err != nil {
		if err != nil {
			time.Sleep(look)
		}
		_, err = f.js.PublishMsg(context.Background(), &nats.Msg{Subject: reply, Data: data, Header: nats.Header{"Content-Type": {"application/cloudevents+json"}}}, expect...)
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); err != nil && !f.has("acks-refused") && (!ok || api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence) {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	_ = m.Ack()
}

func due(e wire.Event) time.Time {
	text, _ := e.Extensions[wire.ExpiryTime].(string)
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at
	}
	return time.Now().Add(time.Minute)
}

func (f *foreign) answer(ctx context.Context, call wire.Event) wire.Event {
	answer := wire.Event{
		ID: call.ID + "-answer", Source: call.Type, Type: "weather.forecast.done", Subject: call.Subject, Time: time.Now(), DataSchema: call.DataSchema,
		ParentID: call.ID, AccessControl: call.AccessControl, TraceParent: call.TraceParent, TraceState: call.TraceState,
	}
	text, problem := f.forecast(ctx, call)
	if problem != nil && !f.has("errors-as-text") {
		p := wire.NewProblem(problem)
		switch {
		case f.has("stack"):
			stack := "main.go:7"
			p.ErrorStack = &stack
		case f.has("nameless"):
			p.ErrorName = ""
		}
		answer.Type, answer.DataSchema, answer.Data = "sys.weather.forecast.error", "#/weather/forecast/0.0.0", encoded(p)
		return answer
	}
	answer.Data = encoded(forecast{text})
	switch f.defect {
	case "counts":
		answer.Data = encoded(forecast{fmt.Sprintf("%s for the %d. time", text, f.handled.Add(1))})
	case "wrong-data":
		answer.Data = encoded(map[string]int{"text": 7})
	case "wrong-type":
		answer.Type = "weather.forecast"
	case "wrong-parent":
		answer.ParentID = "c1-0-" + strings.Repeat("a", 26)
	case "bare":
		answer.ParentID, answer.Subject, answer.AccessControl, answer.TraceParent = "", "", "", ""
	case "ascii":
		answer.Subject = url.QueryEscape(answer.Subject)
	}
	return answer
}

func (f *foreign) forecast(ctx context.Context, call wire.Event) (string, *sdk.Error) {
	uri, version, _ := contracts.ParseSchemaRef(call.DataSchema)
	if !f.has("any-version") && version != "1.0.0" || f.has("one-uri") && uri != "#/weather/forecast" {
		return "", sdk.Errorf(sdk.CodeContractMissing, "%s is not served here", call.DataSchema)
	}
	if faults := f.version.Accepts.Validate(call.Data); len(faults) > 0 && !f.has("no-check") {
		return "", &sdk.Error{Code: sdk.CodeContractViolation, Message: "the data does not fit the contract", Faults: faults}
	}
	var in place
	_ = json.Unmarshal(call.Data, &in) // it was checked, or is not to be
	switch in.City {
	case "Atlantis":
		return "", sdk.Errorf(sdk.CodeTool, "the weather is unknown in %s", in.City)
	case "Limbo":
		if f.has("works-on") {
			<-time.After(time.Minute)
		}
		<-ctx.Done()
		return "", sdk.Errorf(sdk.CodeDeadline, "the service took too long")
	case "Babel":
		if !f.has("oversends") {
			return "", sdk.Errorf(sdk.CodeTooLarge, "the forecast is larger than the server takes")
		}
		return strings.Repeat("rain ", 1<<19), nil
	}
	return "sunny in " + in.City, nil
}

func encoded(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

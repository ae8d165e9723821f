// Command forecast serves weather.forecast with nats.go and nothing of agentd.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const contractType, uri = "weather.forecast", "#/weather/forecast"

// event is a CloudEvent in structured mode, as far as this program needs it.
type event struct {
	SpecVersion   string          `json:"specversion"`
	ID            string          `json:"id"`
	Source        string          `json:"source"`
	Type          string          `json:"type"`
	Subject       string          `json:"subject,omitempty"`
	DataSchema    string          `json:"dataschema,omitempty"`
	To            string          `json:"to,omitempty"`
	RedirectTo    string          `json:"redirectto,omitempty"`
	ParentID      string          `json:"parentid,omitempty"`
	AccessControl string          `json:"accesscontrol,omitempty"`
	Data          json.RawMessage `json:"data"`
}

// problem is the data of a system error.
type problem struct {
	Name    string  `json:"errorName"`
	Message string  `json:"errorMessage"`
	Stack   *string `json:"errorStack"`
}

func (p problem) Error() string { return p.Message }

// forecast answers a call. key is the same whenever the call comes again.
func forecast(key string, data json.RawMessage) (any, error) {
	var place struct {
		City string `json:"city"`
	}
	if err := json.Unmarshal(data, &place); err != nil {
		return nil, fmt.Errorf("call %s: %w", key, err)
	}
	if place.City == "Atlantis" {
		return nil, problem{Name: "tool_failed", Message: "the weather is unknown in Atlantis"}
	}
	return map[string]string{"text": "sunny in " + place.City}, nil
}

func answer(call event) ([]byte, error) {
	a := event{
		SpecVersion: "1.0", ID: call.ID + "-answer", Source: contractType, Type: contractType + ".done", Subject: call.Subject,
		DataSchema: call.DataSchema, To: call.RedirectTo, ParentID: call.ID, AccessControl: call.AccessControl,
	}
	data, err := forecast(call.ID, call.Data)
	if err != nil {
		p := problem{Name: "internal", Message: "internal error"}
		if !errors.As(err, &p) {
			log.Print(err) // what went wrong inside is not for others to read
		}
		a.Type, a.DataSchema, data = "sys."+contractType+".error", uri+"/0.0.0", p
	}
	if a.Data, err = json.Marshal(data); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

func serve(ctx context.Context, js jetstream.JetStream, m jetstream.Msg) error {
	root, rest, _ := strings.Cut(m.Subject(), ".")
	call, ok := strings.CutPrefix(rest, "out.")
	if !ok {
		return m.Ack() // it is void: nobody waits for that call any more
	}
	var e event
	if err := json.Unmarshal(m.Data(), &e); err != nil {
		log.Printf("no call on %s: %v", m.Subject(), err)
		return m.Ack()
	}
	body, err := answer(e)
	if err != nil {
		return err
	}
	_, err = js.PublishMsg(ctx, &nats.Msg{
		Subject: root + ".in." + call, Data: body, Header: nats.Header{"Content-Type": {"application/cloudevents+json"}},
	}, jetstream.WithExpectLastSequencePerSubject(0))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		err = nil // there is an answer already
	}
	if err != nil {
		return err
	}
	return m.Ack()
}

func run(ctx context.Context) error {
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.UserInfo(os.Getenv("NATS_USER"), os.Getenv("NATS_PASSWORD")),
		nats.CustomInboxPrefix("_INBOX_weather"), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	calls, err := js.Consumer(ctx, "AGENTD_OUT", "svc_local_weather_forecast")
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		m, err := calls.Next(jetstream.FetchMaxWait(5 * time.Second))
		if errors.Is(err, nats.ErrTimeout) {
			continue
		}
		if err != nil {
			log.Printf("no calls, trying again: %v", err)
			time.Sleep(time.Second)
			continue
		}
		if err := serve(ctx, js, m); err != nil {
			log.Printf("%s will be delivered again: %v", m.Subject(), err)
		}
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

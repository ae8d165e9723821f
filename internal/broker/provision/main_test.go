package provision

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testPlan has an agent and a service. Its deliveries last longer than any test, unless they are settled.
var testPlan = Plan{
	AckWait:  time.Hour,
	Agents:   []Agent{{Name: "travel.desk", Type: "com.travel.desk"}},
	Services: []Service{{Domain: "airline", Type: "airline.book"}},
}

var (
	testRun  = wire.NewRunKey("trip-7")
	testCall = wire.CallAddress{
		Domain: "airline", Type: "airline_book", Agent: "travel_desk", Run: testRun, Call: "c1-0-x",
	}
)

// alone is a connection to a server of its own.
func alone(t *testing.T) *broker.Conn {
	t.Helper()
	return brokertest.Connect(t, broker.ConnectOptions{InProcess: brokertest.Server(t, embedded.Options{})})
}

// provisioned is alone on a server that matches testPlan.
func provisioned(t *testing.T) *broker.Conn {
	t.Helper()
	c := alone(t)
	apply(t, c, testPlan)
	return c
}

func apply(t *testing.T, c *broker.Conn, p Plan) []Change {
	t.Helper()
	changes, err := Apply(brokertest.Context(t), c, p)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func event(id string) wire.Event {
	return wire.Event{
		ID: id, Source: "test", Type: "com.test", Subject: "trip-7", DataContentType: wire.ContentTypeJSON,
		Time: time.UnixMilli(1_795_229_924_408).UTC(), Data: json.RawMessage(`{"n":1}`),
	}
}

// stored counts the messages of a zone.
func stored(t *testing.T, c *broker.Conn, z streams.Zone) uint64 {
	t.Helper()
	state, err := c.ZoneState(brokertest.Context(t), z)
	if err != nil {
		t.Fatal(err)
	}
	return state.Messages
}

func mustPublish(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
}

func isCode(err error, code sdk.Code) bool { return errors.Is(err, &sdk.Error{Code: code}) }

package broker

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
)

// tardy is the JetStream of a cluster that confirms pauses, and their ends, before the server that leads the consumer has heard of them:
// here only when that server is asked about the consumer once more.
type tardy struct {
	jetstream.JetStream
	hears map[string]func(context.Context) error
}

func (l *tardy) PauseConsumer(_ context.Context, stream, name string, until time.Time) (*jetstream.ConsumerPauseResponse, error) {
	l.hears[name] = func(ctx context.Context) error {
		_, err := l.JetStream.PauseConsumer(ctx, stream, name, until)
		return err
	}
	return &jetstream.ConsumerPauseResponse{Paused: true, PauseUntil: until}, nil
}

func (l *tardy) ResumeConsumer(_ context.Context, stream, name string) (*jetstream.ConsumerPauseResponse, error) {
	l.hears[name] = func(ctx context.Context) error {
		_, err := l.JetStream.ResumeConsumer(ctx, stream, name)
		return err
	}
	return &jetstream.ConsumerPauseResponse{}, nil
}

func (l *tardy) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	consumer, err := l.JetStream.Consumer(ctx, stream, name)
	if hears := l.hears[name]; hears != nil && err == nil {
		delete(l.hears, name)
		err = hears(ctx)
	}
	return consumer, err
}

// Who has paused or resumed an agent may rely on it, in a cluster too: whoever asks the server that leads its consumers then is told the same. A
// run that is woken asks at once, and one that is told of a pause which is over waits on.
func TestPauseAgent_IsKnownToTheServerThatWorkersAsk(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	c, other := connect(t, ConnectOptions{InProcess: server}), connect(t, ConnectOptions{InProcess: server})
	apply(t, c, testPlan)
	c.js = &tardy{c.js, map[string]func(context.Context) error{}}
	want := func(paused bool) {
		t.Helper()
		refs, err := other.beginnings(testContext(t), testPlan.Agents[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range refs {
			info, err := other.consumerInfo(testContext(t), ref)
			if err != nil || info.Paused != paused {
				t.Fatalf("consumer %s is paused: %t, %v; want %t", ref.Name, info != nil && info.Paused, err, paused)
			}
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	agent := testPlan.Agents[0].Name
	check(c.PauseAgent(testContext(t), agent, AgentPause{For: Endless}))
	want(true)
	_, err := c.ResumeAgent(testContext(t), agent)
	check(err)
	want(false)
	// One that is over before anybody could have heard of it is not waited for.
	check(c.PauseAgent(testContext(t), agent, AgentPause{For: time.Millisecond}))
	want(false)
}

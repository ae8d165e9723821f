package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// asking is a harness whose clerk asks a question in every run, and waits for the answer.
func asking(t *testing.T) *sdktest.Harness {
	t.Helper()
	return sdktest.Start(t, sdktest.Options{
		Agents: []sdk.Agent{clerk(make(chan string, 1))},
		Model: sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
			return sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})), nil
		}),
	})
}

// overhear has a token for each message on a subject.
func overhear(t *testing.T, h *sdktest.Harness, subject string) <-chan *nats.Msg {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(h))
	must(t, err)
	t.Cleanup(nc.Close)
	heard := make(chan *nats.Msg, 64)
	_, err = nc.ChanSubscribe(subject, heard)
	must(t, err)
	must(t, nc.Flush())
	return heard
}

// What waits on a client, with a context that never ends, ends when the client is closed, and says so.
func TestClose_EndsWhatWaits(t *testing.T) {
	t.Parallel()
	const question = "agentd.get.clerk.ann"
	for _, test := range []struct {
		name string
		// begun is where it is heard that the call is under way.
		begun string
		do    func(ctx context.Context, c *client.Client, run client.Run) error
	}{
		{"Wait", "$JS.API.DIRECT.GET.>", func(ctx context.Context, c *client.Client, run client.Run) error {
			_, err := c.Wait(ctx, run)
			return err
		}},
		{"Wait for a run that is not there", question, func(ctx context.Context, c *client.Client, _ client.Run) error {
			_, err := c.Wait(ctx, client.Run{Agent: "clerk", Name: "nobody's"})
			return err
		}},
		{"Follow", question, func(ctx context.Context, c *client.Client, run client.Run) error {
			var last error
			for _, err := range c.Follow(ctx, run, wire.Mark{}) {
				last = err
			}
			return last
		}},
		{"Follow of a run that is not there", question, func(ctx context.Context, c *client.Client, _ client.Run) error {
			var last error
			for _, err := range c.Follow(ctx, client.Run{Agent: "clerk", Name: "nobody's"}, wire.Mark{}) {
				last = err
			}
			return last
		}},
		{"Send to a run that is not there", question, func(ctx context.Context, c *client.Client, _ client.Run) error {
			_, err := c.Send(ctx, client.Run{Agent: "clerk", Name: "nobody's"}, "hurry")
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := asking(t)
			c, err := client.Connect(t.Context(), client.Options{InProcess: h, As: "ann", Patience: time.Hour})
			must(t, err)
			run, err := c.Start(t.Context(), request("one"))
			must(t, err)
			until(t, c, run, sdk.TypeQuestion)
			begun, ended := overhear(t, h, test.begun), make(chan error, 1)
			go func() { ended <- test.do(context.Background(), c, run) }()
			<-begun
			must(t, c.Close())
			select {
			case err := <-ended:
				if !isClosed(err) {
					t.Errorf("it ends with %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("it does not end")
			}
			must(t, c.Close())
		})
	}
}

func TestClose_NoCallIsMadeAfterIt(t *testing.T) {
	t.Parallel()
	h := asking(t)
	c, err := client.Connect(t.Context(), client.Options{InProcess: h, As: "ann"})
	must(t, err)
	run, err := c.Start(t.Context(), request("one"))
	must(t, err)
	call := until(t, c, run, sdk.TypeQuestion)
	must(t, c.Close())
	ctx := context.Background()
	list := func() (last error) {
		for _, err := range c.List(ctx, "clerk", "") {
			last = err
		}
		return last
	}
	history := func() (last error) {
		for _, err := range c.History(ctx, run, wire.Mark{}) {
			last = err
		}
		return last
	}
	_, start := c.Start(ctx, request("two"))
	_, wait := c.Wait(ctx, run)
	_, status := c.Status(ctx, run)
	_, send := c.Send(ctx, run, "hurry")
	_, listen := c.Listen(run)
	_, answer := c.Answer(ctx, run, call.Call, client.Reply{Text: "All."})
	_, publish := c.Publish(ctx, call, sdk.TypeQuestionAnswered, []byte(`{"answer":"All."}`), nil)
	for name, err := range map[string]error{
		"Start": start, "Wait": wait, "Status": status, "Send": send, "Listen": listen, "Answer": answer, "Publish": publish, "List": list(),
		"History": history(), "Cancel": c.Cancel(ctx, run, ""),
	} {
		if !isClosed(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// closed is a connection that is closed while somebody listens.
type closed struct{ client.Conn }

func (closed) WatchLive(_ string, _ wire.RunKey, _ func(wire.Live), missed func(error)) (func() error, error) {
	missed(nil)
	return func() error { return nil }, nil
}
func (closed) Reply(context.Context, string, wire.Event) error { return nil }

func (closed) Ask(context.Context, string, wire.Query, any) error { return nats.ErrConnectionClosed }

func (closed) Subjects() wire.Subjects { return wire.DefaultSubjects() }

// An answer that is stored when the client is closed is sent, and no more of it will be known.
func TestClose_EndsTheWaitForWhatBecomesOfAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		call := client.Call{Run: client.Run{Agent: "clerk", Name: "one"}, WaitingCall: wire.WaitingCall{Event: "c1-0-x"}}
		began := time.Now()
		outcome, err := client.New(closed{}, client.Options{}).Publish(context.Background(), call, "x", []byte(`{}`), nil)
		if err != nil || outcome.State != client.OutcomeSent || time.Since(began) > 0 {
			t.Errorf("%+v, %v after %s", outcome, err, time.Since(began))
		}
	})
}

// isClosed reports whether an error is what Close says that calls end with.
func isClosed(err error) bool {
	coded, is := errors.AsType[*sdk.Error](err)
	return is && coded.Code == sdk.CodeUnavailable && !coded.Retryable
}

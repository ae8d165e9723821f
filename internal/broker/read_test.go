package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk"
)

// Messages are handed out in order, each once: those of several answers, and those that come later.
func TestFollow_ReadsThroughWorkers(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	opening, cancel := context.WithCancel(testContext(t))
	cancel()
	err := c.Follow(testContext(t), opening, streams.Out, "agentd.out.>", func() {}, func(Delivery) {})
	if !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("without a worker: %v", err)
	}
	stop, err := c.Serve(c.Reader())
	if err != nil {
		t.Fatal(err)
	}
	const many = batchMessages + 10
	call := func(i int) {
		address := testCall
		address.Call = "c" + strconv.Itoa(i) + "-0-x"
		mustPublish(t, c.Publish(testContext(t), c.subjects.Call(address), event(fmt.Sprint(i))))
	}
	for i := range many {
		call(i)
	}
	seen, caughtUp, ended := make(chan uint64, 2*many), make(chan int, 1), make(chan error, 1)
	ctx, end := context.WithCancel(testContext(t))
	go func() {
		ended <- c.Follow(ctx, ctx, streams.Out, "agentd.*.airline.>", func() { caughtUp <- len(seen) }, func(d Delivery) { seen <- d.Sequence() })
	}()
	if n := receive(t, "that it has caught up", caughtUp); n != many {
		t.Errorf("caught up after %d messages; want %d", n, many)
	}
	call(many)
	for want := uint64(1); want <= many+1; want++ {
		if got := receive(t, "a message", seen); got != want {
			t.Fatalf("message %d comes as number %d", got, want)
		}
	}
	end()
	if err := receive(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestFollow_EndsWithItsConnection(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	worker, desk := connect(t, ConnectOptions{InProcess: server}), connect(t, ConnectOptions{InProcess: server})
	apply(t, worker, testPlan)
	stop, err := worker.Serve(worker.Reader())
	if err != nil {
		t.Fatal(err)
	}
	caughtUp, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ctx := testContext(t)
		ended <- desk.Follow(ctx, ctx, streams.Out, "agentd.out.>", func() { close(caughtUp) }, func(Delivery) {})
	}()
	receive(t, "that it has caught up", caughtUp)
	if err := desk.Close(); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the end", ended); !Closed(err) {
		t.Errorf("it ended with %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAsk_WhoIsTooSlowIsNamed(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	for _, subject := range []string{c.subjects.IndexQuery(), c.subjects.Read("AGENTD_OUT", "agentd.out.>")} {
		stop, err := c.subscribe(subject, func(*nats.Msg) {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
	defer cancel()
	if _, _, err := c.AskIndex(ctx, nil); !isCode(err, sdk.CodeUnavailable) || !strings.Contains(err.Error(), "whoever has the index of runs") {
		t.Errorf("an index that does not answer: %v", err)
	}
	if _, err := c.page(ctx, streams.Out, "agentd.out.>", 1); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("workers that do not answer: %v", err)
	}
}

// An answer may be lost between two connections: who waits for it asks again over the new one, and not when its time is up.
func TestPage_IsNotWaitedForOverAnotherConnection(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	subject := c.subjects.Read("AGENTD_OUT", "agentd.out.>")
	stop, err := c.subscribe(subject, func(*nats.Msg) {
		if err := c.nc.ForceReconnect(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.page(testContext(t), streams.Out, "agentd.out.>", 1)
	if !isCode(err, sdk.CodeUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Over a connection that is closed nothing comes any more: who waits for it is told so at once.
func TestPage_IsNotWaitedForOverAConnectionThatIsClosed(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	worker, asking := connect(t, ConnectOptions{InProcess: server}), connect(t, ConnectOptions{InProcess: server})
	stop, err := worker.subscribe(worker.subjects.Read("AGENTD_OUT", "agentd.out.>"), func(*nats.Msg) { asking.nc.Close() })
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := asking.page(testContext(t), streams.Out, "agentd.out.>", 1); !Closed(err) {
		t.Errorf("it ended with %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Who asks a worker that finds nobody who leads the stream is told so, and that it may try again.
func TestUnread_SaysThatNobodyLeads(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{context.DeadlineExceeded, nats.ErrNoResponders, nats.ErrTimeout, &jetstream.APIError{ErrorCode: 10008}} {
		if err := unread("AGENTD_OUT", fmt.Errorf("read: %w", cause)); !isCode(err, sdk.CodeUnavailable) || !errors.Is(err, cause) {
			t.Errorf("of %v it says %v", cause, err)
		}
	}
	if err := unread("AGENTD_OUT", jetstream.ErrMsgNotFound); isCode(err, sdk.CodeUnavailable) {
		t.Errorf("of a message that is not there it says %v", err)
	}
}

// What follows a message that was lost on its way is asked for again.
func TestPage_EndsBeforeAGap(t *testing.T) {
	t.Parallel()
	var p page
	told := func(sequence, before string) *nats.Msg {
		return &nats.Msg{Header: nats.Header{headerSequence: {sequence}, headerBefore: {before}, headerStored: {"2026-11-22T00:00:00Z"}}}
	}
	for i, m := range []*nats.Msg{told("7", "0"), told("9", "7")} {
		if done, err := p.take(m); done || err != nil {
			t.Fatalf("message %d: %t, %v", i, done, err)
		}
	}
	if done, err := p.take(told("12", "11")); !done || err != nil || !p.more || len(p.messages) != 2 {
		t.Errorf("after a gap: %t, %v, %+v", done, err, p)
	}
}

// A filter is read only on the streams of what people are asked, and only as the server holds a user to it.
func TestReader_ReadsOnlyWhatPeopleAreAsked(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	for subject, want := range map[string]bool{
		"AGENTD_OUT agentd.*.human_interaction.>": true, "AGENTD_IN agentd.in.finance.>": true, "AGENTD_DLQ agentd.dlq.*.agentd_in.>": true,
		"AGENTD_RUN agentd.run.>": false, "KV_AGENTD_GRANTS $KV.>": false, "AGENTD_OUT agentd.>.human_interaction": false,
		"AGENTD_OUT >": false, "AGENTD_OUT agentd..x": false, "AGENTD_OUT ": false,
	} {
		var stream, filter string
		_, _ = fmt.Sscan(subject, &stream, &filter) // the last one has no filter
		if got := c.readable(stream, filter); got != want {
			t.Errorf("%s is read: %t; want %t", subject, got, want)
		}
	}
}

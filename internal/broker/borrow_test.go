package broker

import (
	"slices"
	"testing"

	"agentd/internal/broker/embedded"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A root is borrowed by one program at a time, and by nobody who would find it in use; what is given back is that root alone, and only
// what was borrowed.
func TestBorrow_TakesAnUnusedRootAlone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	used := provisioned(t)
	streams := func() (names []string) {
		all := used.js.StreamNames(ctx)
		for name := range all.Name() {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	before := streams()
	if err := used.Borrow(ctx, "x"); !isCode(err, sdk.CodeConfig) {
		t.Errorf("a root in use is borrowed: %v", err)
	}
	if err := used.GiveBack(ctx); !isCode(err, sdk.CodeConfig) || !slices.Equal(before, streams()) {
		t.Errorf("a root in use is given back: %v; its streams are %q", err, streams())
	}
	subjects, err := wire.NewSubjects("borrowed")
	if err != nil {
		t.Fatal(err)
	}
	free := &Conn{nc: used.nc, js: used.js, subjects: subjects, log: used.log, own: used.own, closed: used.closed}
	if err := free.Borrow(ctx, "the first"); err != nil {
		t.Fatal(err)
	}
	if err := free.Borrow(ctx, "the second"); !isCode(err, sdk.CodeConfig) {
		t.Errorf("a root is borrowed twice: %v", err)
	}
	if by, err := free.Borrowed(ctx); err != nil || by == nil || by.By != "the first" || by.Since.IsZero() {
		t.Errorf("it is borrowed by %+v: %v", by, err)
	}
	provision(t, free, Plan{Index: true, Partitions: 4})
	if err := free.PublishBorrowed(ctx, []byte("x")); err != nil {
		t.Error(err)
	}
	if err := free.GiveBack(ctx); err != nil || !slices.Equal(before, streams()) {
		t.Errorf("given back: %v; the streams are %q, want %q", err, streams(), before)
	}
}

func TestConn_CountsItsTraffic(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: server})
	provision(t, c, testPlan)
	call(t, c, "the-first-has-consumers-looked-at")
	eventually(t, "that is noted", func() bool {
		noted, err := c.Note(testContext(t), c.inPlaceNote())
		return err == nil && string(noted) == c.Server()
	})
	before := c.Traffic()
	mustPublish(t, c.Publish(testContext(t), c.Subjects().Call(testCall), event("e")))
	after := c.Traffic()
	if after.Sent != before.Sent+1 || after.Received != before.Received+1 || after.SentBytes < before.SentBytes+100 {
		t.Errorf("a publish and its confirmation are %+v after %+v", after, before)
	}
	if d, err := c.RoundTrip(); err != nil || d <= 0 {
		t.Errorf("a round trip takes %s: %v", d, err)
	}
}

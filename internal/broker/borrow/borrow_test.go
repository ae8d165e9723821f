package borrow

import (
	"errors"
	"slices"
	"testing"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A root is borrowed by one program at a time, and by nobody who would find it in use; what is given back is that root alone, and only
// what was borrowed.
func TestTake_TakesAnUnusedRootAlone(t *testing.T) {
	t.Parallel()
	ctx, refused := brokertest.Context(t), &sdk.Error{Code: sdk.CodeConfig}
	server := brokertest.Server(t, embedded.Options{})
	used := brokertest.Connect(t, broker.ConnectOptions{InProcess: server})
	if _, err := provision.Apply(ctx, used, provision.Plan{}); err != nil {
		t.Fatal(err)
	}
	there := func() (names []string) {
		all := used.JetStream().StreamNames(ctx)
		for name := range all.Name() {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	before := there()
	if err := Take(ctx, used, "x"); !errors.Is(err, refused) {
		t.Errorf("a root in use is borrowed: %v", err)
	}
	if err := GiveBack(ctx, used); !errors.Is(err, refused) || !slices.Equal(before, there()) {
		t.Errorf("a root in use is given back: %v; its streams are %q", err, there())
	}
	subjects, err := wire.NewSubjects("borrowed")
	if err != nil {
		t.Fatal(err)
	}
	free := brokertest.Connect(t, broker.ConnectOptions{InProcess: server, Subjects: subjects})
	if err := Take(ctx, free, "the first"); err != nil {
		t.Fatal(err)
	}
	if err := Take(ctx, free, "the second"); !errors.Is(err, refused) {
		t.Errorf("a root is borrowed twice: %v", err)
	}
	if by, err := By(ctx, free); err != nil || by == nil || by.By != "the first" || by.Since.IsZero() {
		t.Errorf("it is borrowed by %+v: %v", by, err)
	}
	if _, err := provision.Apply(ctx, free, provision.Plan{Index: true, Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	if err := Publish(ctx, free, []byte("x")); err != nil {
		t.Error(err)
	}
	if err := GiveBack(ctx, free); err != nil || !slices.Equal(before, there()) {
		t.Errorf("given back: %v; the streams are %q, want %q", err, there(), before)
	}
}

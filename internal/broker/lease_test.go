package broker

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Who holds a lease has it for longer than it lasts, and until it ends after they have gone.
func TestHold_IsRenewed(t *testing.T) {
	t.Parallel()
	const lasts = 6 * time.Second // longer than a machine that is busy delays a renewal
	c := provisioned(t)
	ctx := testContext(t)
	h, err := c.Hold(ctx, "work", lasts)
	if err != nil || h == nil {
		t.Fatalf("hold: %v, %v", h, err)
	}
	held, end := h.While(ctx)
	defer end()
	sequences := map[uint64]bool{}
	eventually(t, "it has been renewed for longer than it lasts", func() bool {
		m, err := c.Last(ctx, c.leaseSubject("work"))
		if err != nil {
			t.Fatalf("after %d renewals the lease is gone: %v", len(sequences)-1, err)
		}
		sequences[m.Sequence] = true
		return len(sequences) > 4
	})
	if other, err := c.Hold(ctx, "work", lasts); err != nil || other != nil {
		t.Errorf("another one has the lease too: %v, %v", other, err)
	}
	if h.Lost() || held.Err() != nil {
		t.Errorf("the lease is lost: %v", context.Cause(held))
	}
	h.Close()
	eventually(t, "another one has the lease", func() bool {
		other, err := c.Hold(ctx, "work", lasts)
		if err != nil {
			t.Fatalf("nobody gets the lease of who has gone: %v", err)
		}
		if other != nil {
			other.Close()
		}
		return other != nil
	})
	if held.Err() != nil {
		t.Errorf("who has given it up is told that it was lost: %v", context.Cause(held))
	}
}

// Whoever loses a lease is told: somebody else has it, or it is not known whether they do.
func TestHold_IsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *Conn){
		"somebody else has it": func(t *testing.T, c *Conn) {
			if err := c.EndLease(testContext(t), "work"); err != nil {
				t.Fatal(err)
			}
		},
		"the broker cannot be reached": func(_ *testing.T, c *Conn) { c.nc.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := provisioned(t)
			ctx := testContext(t)
			h, err := c.Hold(ctx, "work", 2*time.Second)
			if err != nil || h == nil {
				t.Fatalf("hold: %v, %v", h, err)
			}
			defer h.Close()
			held, end := h.While(ctx)
			defer end()
			lose(t, c)
			<-held.Done()
			if cause := context.Cause(held); !errors.Is(cause, ErrLeaseLost) || !h.Lost() {
				t.Errorf("it ended with %v", cause)
			}
			after, end := h.While(ctx)
			defer end()
			<-after.Done()
		})
	}
}

// A renewal whose answer was lost is found.
func TestHold_FindsItsOwnRenewal(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	ctx := testContext(t)
	h, err := c.Hold(ctx, "work", time.Hour)
	if err != nil || h == nil {
		t.Fatalf("hold: %v, %v", h, err)
	}
	defer h.Close()
	if _, err := c.putLease(ctx, h.name, h.holder, h.d, h.sequence); err != nil {
		t.Fatal(err)
	}
	if err := h.putAgain(ctx); err == nil || h.Lost() {
		t.Errorf("put with the sequence of before: %v", err)
	}
	if err := h.putAgain(ctx); err != nil {
		t.Errorf("put again: %v", err)
	}
}

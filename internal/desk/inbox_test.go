package desk

import (
	"testing"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/broker"
)

// voided is the delivery of a call's void.
type voided struct {
	broker.Delivery
	subject  string
	sequence uint64
	received int64
}

func (v voided) Subject() string  { return v.subject }
func (v voided) Sequence() uint64 { return v.sequence }
func (v voided) Received() int64  { return v.received }

// Domains are read side by side: that one has been read far says nothing of another. Whoever took it for that would think that
// a request which the desk has not seen yet is not open any more.
func TestRead_IsOfOneDomain(t *testing.T) {
	t.Parallel()
	d := &Desk{inbox: newInbox(wire.DefaultSubjects(), time.Now)}
	subject := wire.DefaultSubjects().Void(wire.CallAddress{
		Domain: "the_boss", Type: "agentd_permission_request", Agent: "clerk", Run: wire.NewRunKey("one"), Call: "c1-0-x",
	})
	if err := d.inbox.called(voided{subject: subject, sequence: 10, received: 100}); err != nil {
		t.Fatal(err)
	}
	for domain, want := range map[string]bool{"the_boss": true, "human_interaction": false} {
		if got := d.Read(domain, voided{sequence: 5, received: 90}); got != want {
			t.Errorf("the domain %s has been read up to 5: %t; want %t", domain, got, want)
		}
	}
	if d.Read("the_boss", voided{sequence: 5, received: 101}) {
		t.Error("a message that is younger than all that were read counts as read")
	}
}

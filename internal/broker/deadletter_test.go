package broker

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// post stores a message of the zone's own and returns it as a delivery.
func post(t *testing.T, c *Conn, z streams.Zone, subject string, data []byte) Delivery {
	t.Helper()
	ack, err := c.js.Publish(testContext(t), subject, data)
	mustPublish(t, err)
	var d Delivery
	err = c.Watch(testContext(t), z, []string{subject}, func(got Delivery) bool {
		d = got
		return got.Sequence() != ack.Sequence
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// reject dead-letters a delivery and returns the letter.
func reject(t *testing.T, c *Conn, d Delivery, reason sdk.Code) Letter {
	t.Helper()
	mustPublish(t, c.DeadLetter(testContext(t), d, reason, "why"))
	var last Letter
	err := c.Letters(testContext(t), LetterFilter{Reason: reason}, func(l Letter) (bool, error) {
		last = l
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}

func conflict(t *testing.T, doing string, err error) {
	t.Helper()
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		t.Errorf("%s: %v, want a conflict", doing, err)
	}
}

func TestLetters_AreSelectedAndLeaveOutWhatWasSettled(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	subject := c.subjects.Start("travel.desk")
	broken := reject(t, c, post(t, c, streams.Start, subject, []byte("one")), sdk.CodeInvalidEvent)
	second := reject(t, c, post(t, c, streams.Start, subject, []byte("two")), sdk.CodePoison)
	if want := streams.Name(c.subjects, streams.Start); second.Stream != want || second.Origin != 2 || second.Subject != subject || string(second.Data) != "two" {
		t.Errorf("letter %+v, want message 2 of %s", second, want)
	}
	list := func(f LetterFilter) (found []uint64) {
		err := c.Letters(testContext(t), f, func(l Letter) (bool, error) {
			found = append(found, l.Sequence)
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	both := []uint64{broken.Sequence, second.Sequence}
	for _, test := range []struct {
		name   string
		filter LetterFilter
		want   []uint64
	}{
		{"all", LetterFilter{}, both},
		{"by reason", LetterFilter{Reason: sdk.CodePoison}, both[1:]},
		{"after", LetterFilter{After: broken.Sequence}, both[1:]},
		{"since a time", LetterFilter{Since: time.UnixMilli(broken.At)}, both},
		{"since later", LetterFilter{Since: time.UnixMilli(second.At).Add(time.Hour)}, nil},
	} {
		if diff := cmp.Diff(test.want, list(test.filter)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}

	mustPublish(t, c.SettleLetter(testContext(t), broken, "dropped"))
	conflict(t, "settle it again", c.SettleLetter(testContext(t), broken, "dropped"))
	if diff := cmp.Diff(both[1:], list(LetterFilter{})); diff != "" {
		t.Errorf("after one was dropped (-want +got):\n%s", diff)
	}
	if _, err := c.Letter(testContext(t), broken.Sequence); !errors.Is(err, ErrNotStored) {
		t.Errorf("read it: %v", err)
	}
	// It still is known to have been one, and is not dead-lettered anew by a delivery whose ack was lost.
	mustPublish(t, c.DeadLetter(testContext(t), first(t, c, streams.Start, subject), sdk.CodeInvalidEvent, "why"))
	if diff := cmp.Diff(both[1:], list(LetterFilter{})); diff != "" {
		t.Errorf("after its message came again (-want +got):\n%s", diff)
	}
	for sequence, want := range map[uint64]sdk.Code{1: sdk.CodeInvalidEvent, 2: sdk.CodePoison, 3: ""} {
		if got, err := c.DeadLettered(testContext(t), streams.Name(c.subjects, streams.Start), sequence); got != want || err != nil {
			t.Errorf("message %d was dead-lettered for %q, %v; want %q", sequence, got, err, want)
		}
	}
}

// Whoever deals with a letter may be interrupted when it has left its mark, and before the letter is removed. The next who tries removes it,
// and publishes nothing again.
func TestLetters_DealingWithOneIsFinishedByWhoTriesAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*Conn, Letter) error{
		"drop": func(c *Conn, l Letter) error { return c.SettleLetter(testContext(t), l, "dropped") },
		"redrive": func(c *Conn, l Letter) error {
			_, _, err := c.Republish(testContext(t), l)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := provisioned(t)
			l := reject(t, c, post(t, c, streams.Start, c.subjects.Start("travel.desk"), []byte("one")), sdk.CodeInvalidEvent)
			mark := &nats.Msg{Subject: l.own, Header: nats.Header{headerSettled: {"redriven to 7"}}}
			if _, err := c.js.PublishMsg(testContext(t), mark); err != nil {
				t.Fatal(err)
			}
			err := again(c, l)
			if !isCode(err, sdk.CodeConflict) || !strings.Contains(err.Error(), "was dealt with before: redriven to 7") {
				t.Errorf("%v", err)
			}
			if _, err := c.At(testContext(t), streams.DLQ, l.Sequence); !errors.Is(err, ErrNotStored) {
				t.Errorf("it is still there: %v", err)
			}
			if n := stored(t, c, streams.Start); n != 1 {
				t.Errorf("%d messages are where it came from; want the one", n)
			}
		})
	}
}

// Who settles a letter that is another by then, or none, is told which.
func TestSettleLetter_SaysWhyItIsTooLate(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	d := post(t, c, streams.In, c.subjects.Reply(testCall), []byte("no event"))
	letter := reject(t, c, d, sdk.CodeInvalidEvent)
	told := func() string { return sdk.AsError(c.SettleLetter(testContext(t), letter, "dropped")).Error() }
	if _, err := c.js.Publish(testContext(t), letter.own, []byte("no event")); err != nil {
		t.Fatal(err)
	}
	if got := told(); got != "conflict: the message of dead letter 1 was dead-lettered again meanwhile" {
		t.Errorf("a letter that came again: %s", got)
	}
	s, err := c.js.Stream(testContext(t), "AGENTD_DLQ")
	if err == nil {
		err = s.Purge(testContext(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := told(); got != "conflict: dead letter 1 is not there any more: it is past its age, or somebody deleted it" {
		t.Errorf("a letter that is gone: %s", got)
	}
}

func TestRepublish_CountsAndNeverOvertakesAnAnswer(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	reply := c.subjects.Reply(testCall)
	wrong := reject(t, c, post(t, c, streams.In, reply, []byte("wrong")), sdk.CodeUnknownRun)
	stream, sequence, err := c.Republish(testContext(t), wrong)
	if err != nil || stream != streams.Name(c.subjects, streams.In) || sequence != 2 {
		t.Fatalf("republish: message %d of %s, %v", sequence, stream, err)
	}
	// The first copy may still be on its way to a worker.
	_, _, err = c.Republish(testContext(t), wrong)
	conflict(t, "publish it once more", err)

	copied, err := c.At(testContext(t), streams.In, sequence)
	if err != nil {
		t.Fatal(err)
	}
	if copied.Header(headerRedrives) != "1" || copied.Header(headerReason) != "" || !bytes.Equal(copied.Data, wrong.Data) {
		t.Errorf("the copy is %+v", copied)
	}
	var delivery Delivery
	err = c.Watch(testContext(t), streams.In, []string{reply}, func(d Delivery) bool {
		delivery = d
		return d.Sequence() != sequence
	})
	if err != nil {
		t.Fatal(err)
	}
	again := reject(t, c, delivery, sdk.CodeUnknownRun)
	if again.Redrives != 1 {
		t.Errorf("the copy came back with %d redrives", again.Redrives)
	}
	if _, _, err = c.Republish(testContext(t), again); err != nil {
		t.Errorf("publish it after it came back: %v", err)
	}
	right := post(t, c, streams.In, reply, []byte("right"))
	_, _, err = c.Republish(testContext(t), wrong)
	conflict(t, "publish it after message "+right.Subject(), err)
}

func TestLetter_ReadsAnOmittedBodyWhereItCameFrom(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	large := bytes.Repeat([]byte("x"), int(c.nc.MaxPayload())-100)
	l := reject(t, c, post(t, c, streams.Start, c.subjects.Start("travel.desk"), large), sdk.CodeInvalidEvent)
	if !l.Omitted || l.Data != nil {
		t.Fatalf("the letter has %d bytes; want it too large to be copied", len(l.Data))
	}
	got, err := c.Letter(testContext(t), l.Sequence)
	if err != nil || got.Omitted || !bytes.Equal(got.Data, large) {
		t.Errorf("letter with %d bytes, omitted: %v, %v", len(got.Data), got.Omitted, err)
	}
}

func TestContest_KeepsWhatCouldNotBePublished(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	subject := c.subjects.Done("travel.desk", testRun, "init")
	mustPublish(t, c.Publish(testContext(t), subject, event("one")))
	conflict(t, "publish another", c.Publish(testContext(t), subject, event("two")))
	for range 2 { // a redelivery finds the same conflict
		mustPublish(t, c.Contest(testContext(t), subject, event("two")))
	}
	if n := stored(t, c, streams.DLQ); n != 1 {
		t.Fatalf("%d dead letters", n)
	}
	l, err := c.Letter(testContext(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodeEvent(l.Headers, l.Data)
	if err != nil || got.ID != "two" || l.Reason != sdk.CodeConflict || l.Subject != subject {
		t.Errorf("letter %+v with event %s, %v", l, got.ID, err)
	}
}

package broker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk/wire"
)

// A server finds out late that its index of a stream says more than can be read. Its consumers have delivered messages that are gone, and
// would pass over those that get their sequences.
func TestPutBack_ConsumersThatAreAheadOfTheirStream(t *testing.T) {
	t.Parallel()
	const (
		stream      = "AGENTD_OUT"
		calls, lost = 20, 15
	)
	for name, of := range map[string]struct {
		inHand int
		comes  []string
	}{
		"all are settled": {0, []string{"before", "after"}},
		"one is in hand": {12, []string{
			"call-12-", "call-13-", "call-14-", "before", "after",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRestorable(t)
			for i := 1; i <= calls; i++ {
				call(t, r.conn, fmt.Sprintf("call-%d-", i))
			}
			consumer, err := r.conn.js.Consumer(testContext(t), stream, ServiceConsumer("airline", "airline.book").Name)
			if err != nil {
				t.Fatal(err)
			}
			for n, m := range delivered(t, consumer, calls) {
				if n+1 == of.inHand {
					continue
				}
				if err := m.DoubleAck(testContext(t)); err != nil {
					t.Fatal(err)
				}
			}
			var started time.Time
			r.while(func() error {
				started = time.Now()
				msgs := filepath.Join(r.o.Dir, "jetstream", "$G", "streams", stream, "msgs")
				_, err := os.Stat(filepath.Join(msgs, "index.db"))
				block, blockErr := os.ReadFile(filepath.Join(msgs, "1.blk"))
				if err := errors.Join(err, blockErr); err != nil {
					return err
				}
				from := bytes.Index(block, fmt.Appendf(nil, "call-%d-", lost))
				to := bytes.Index(block, fmt.Appendf(nil, "call-%d-", lost+1))
				clear(block[from:to]) // with the length of the one that follows
				return os.WriteFile(filepath.Join(msgs, "1.blk"), block, 0o600)
			})
			call(t, r.conn, "before")
			back, err := r.conn.PutBack(testContext(t), ZoneOut, started)
			if diff := cmp.Diff([]string{stream + "." + consumer.CachedInfo().Name}, back); err != nil || diff != "" {
				t.Fatalf("put back are (-want +got):\n%s%v", diff, err)
			}
			if again, err := r.conn.PutBack(testContext(t), ZoneOut, started); err != nil || len(again) != 0 {
				t.Errorf("put back again are %v: %v", again, err)
			}
			call(t, r.conn, "after")
			var comes []string
			for _, m := range delivered(t, consumer, len(of.comes)) {
				event, err := wire.DecodeEvent(m.Headers(), m.Data())
				if err != nil {
					t.Fatal(err)
				}
				comes = append(comes, event.ID)
			}
			if diff := cmp.Diff(of.comes, comes); diff != "" {
				t.Errorf("what comes (-want +got):\n%s", diff)
			}
		})
	}
}

// delivered are the next n messages of a consumer.
func delivered(t *testing.T, consumer jetstream.Consumer, n int) (all []jetstream.Msg) {
	t.Helper()
	batch, err := consumer.Fetch(n)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		all = append(all, m)
	}
	if err := batch.Error(); err != nil || len(all) != n {
		t.Fatalf("%d messages come, not %d: %v", len(all), n, err)
	}
	return all
}

package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/bulk"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// redriver is mortal, and also killed after so many dead letters were published again.
type redriver struct {
	*mortal
	letters int
}

func (r *redriver) Redrive(ctx context.Context, sequence uint64, by string) error {
	if r.dead {
		return errKilled
	}
	if err := r.Live.Redrive(ctx, sequence, by); err != nil {
		return err
	}
	if r.letters--; r.letters == 0 {
		r.dead = true
	}
	return nil
}

// TestBulk_RedrivesEachLetterOnce with programs that are killed in the middle of each piece, before they keep what became of it, and before
// they say that they did. Dead letters that came afterwards, that the filter does not select, or that somebody dealt with, are left alone.
func TestBulk_RedrivesEachLetterOnce(t *testing.T) {
	t.Parallel()
	const letters = 110
	model := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) { return sdktest.Say("3"), nil })
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: desk()}}, Model: model})
	subjects := h.Conn().Subjects()
	dead := func(n int, reason sdk.Code) {
		t.Helper()
		init := h.Init("desk", hello())
		init.Subject, init.ID = fmt.Sprintf("run %d", n), fmt.Sprintf("run-%d", n)
		data, err := json.Marshal(init)
		if err != nil {
			t.Fatal(err)
		}
		stream := streams.Name(subjects, streams.Start)
		m := &nats.Msg{Subject: subjects.DeadLetter(reason, stream, uint64(n+1000)), Data: data, Header: nats.Header{
			"agentd-reason": {string(reason)}, "agentd-subject": {subjects.Start("desk")}, "agentd-detail": {"the disk was full"},
		}}
		if _, err := h.Conn().JetStream().PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for n := range letters {
		dead(n, sdk.CodeInternal)
	}
	dead(letters, sdk.CodeUnknownAgent)
	var mu sync.Mutex
	starts := map[string]int{}
	untail, err := h.Conn().Tail(subjects.Root()+".start.>", func(_ string, headers map[string][]string, data []byte) {
		var init struct{ ID string }
		mu.Lock()
		defer mu.Unlock()
		if err := json.Unmarshal(data, &init); err != nil || headers["agentd-redrives"] == nil {
			t.Errorf("%v in %s (%v)", err, data, headers)
		}
		starts[init.ID]++
	})
	if err != nil {
		t.Fatal(err)
	}

	o := operate(t, h)
	job := o.propose(bulk.VerbRedrive, "code:internal agent:desk changed>-1h")
	if job.Runs != letters || len(job.Samples) != 10 || job.Samples[0] != "1" || job.State != bulk.Proposed {
		t.Fatalf("%+v", job)
	}
	dead(letters+1, sdk.CodeInternal) // came too late for the job
	if err := h.Conn().SettleLetter(t.Context(), letter(t, h, 7), "dropped"); err != nil {
		t.Fatal(err)
	}
	if err := o.program(&mortal{}).Confirm(t.Context(), job, letters); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for attempt := 0; job.State != bulk.Finished; attempt++ {
		m := []*redriver{{&mortal{}, 20}, {&mortal{at: ".results."}, 0}, {&mortal{at: job.ID, writes: 2}, 0}}[attempt%3]
		b := o.program(m.mortal)
		b.Runs = m
		if err := b.CarryOut(t.Context(), job, func(*bulk.Job) {}); err != nil {
			killed++
		}
		if attempt > 20 {
			t.Fatalf("it does not end: %+v", job)
		}
		if job, err = o.program(&mortal{}).Get(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
		o.later += 31_000
	}
	if killed != 3 || job.Counts[bulk.Done] != letters-1 || job.Counts[bulk.Skipped] != 1 || job.Counts[bulk.Failed] != 0 {
		t.Errorf("%d programs were killed; %+v", killed, job.Counts)
	}
	err = o.program(&mortal{}).Results(t.Context(), job, func(some []bulk.Result) error {
		for _, r := range some {
			if r.Outcome == bulk.Skipped && (r.Run != "7" || r.Problem != "it was dealt with before: dropped") {
				t.Errorf("%+v", r)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := untail(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for id, n := range starts {
		if n != 1 {
			t.Errorf("%s was published %d times", id, n)
		}
	}
	left := 0
	if err := h.Conn().Letters(t.Context(), broker.LetterFilter{}, func(broker.Letter) (bool, error) { left++; return true, nil }); err != nil {
		t.Fatal(err)
	}
	if len(starts) != letters-1 || left != 2 {
		t.Errorf("%d of %d letters were published again, and %d are left; want 2", len(starts), letters, left)
	}
	how, err := h.Conn().LetterSettled(t.Context(), streams.Name(subjects, streams.Start), 1000)
	if err != nil || !strings.Contains(how, "bulk job "+job.ID) {
		t.Errorf("the mark of a letter says %q, %v, and not who redrove it", how, err)
	}
}

func letter(t *testing.T, h *harness.Harness, sequence uint64) broker.Letter {
	t.Helper()
	l, err := h.Conn().Letter(t.Context(), sequence)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A filter of dead letters says what they have, and the error what that is.
func TestBulk_RefusesWhatLettersDoNotHave(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: desk()}}, Model: sdktest.Script()})
	o := operate(t, h)
	for filter, want := range map[string]string{"": "code:* is all of them", "tag.tenant:acme run:*": "tag.tenant:acme is nothing that dead letters have"} {
		r := bulk.Request{Verb: bulk.VerbRedrive}
		if filter != "" {
			if err := r.Filter.UnmarshalText([]byte(filter)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := o.program(&mortal{}).Propose(t.Context(), r)
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeContractViolation}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", filter, err)
		}
	}
}

package runner_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// passing is an Env whose clock is so far behind now.
type passing struct {
	still
	after *time.Duration
}

func (p passing) Now() int64 { return now + p.after.Milliseconds() }

// A message into a run is heard, unless another delivery of it may have been refused because the run had no journal for two minutes. All times
// are those since the run began.
func TestMessage_ThatMayHaveBeenRefusedIsNotHeard(t *testing.T) {
	t.Parallel()
	const heard = ""
	for name, c := range map[string]struct {
		received time.Duration
		handled  []time.Duration
		want     string
	}{
		"more than a minute before the run":            {-61 * time.Second, []time.Duration{time.Second}, "no run waits for this message"},
		"within a minute before the run":               {-59 * time.Second, []time.Duration{time.Second}, heard},
		"before the run, and two minutes old":          {-47 * time.Second, []time.Duration{73 * time.Second}, "may have had no journal"},
		"before the run, and less than two minutes":    {-47 * time.Second, []time.Duration{72 * time.Second}, heard},
		"soon after the run began, and two minutes":    {time.Minute, []time.Duration{3 * time.Minute}, "may have had no journal"},
		"later than that, and two minutes old":         {time.Minute + time.Millisecond, []time.Duration{5 * time.Minute}, heard},
		"heard before, and delivered again afterwards": {-47 * time.Second, []time.Duration{time.Second, 3 * time.Minute}, heard},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock time.Duration
			r := runner.New(runner.Options{
				Store: memory.New(), Publisher: nowhere{}, Env: passing{still{&atomic.Int64{}}, &clock}, Catalog: only{newDesk(10, "lookup").agent()},
				Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
			})
			process(t, r, "order 7", starts, `{}`)
			before := len(journal(t, r, "order 7"))
			var v runner.Verdict
			for i, at := range c.handled {
				clock = at
				v = r.Process(t.Context(), &runner.Message{
					Address: wire.Address{Kind: wire.KindCtl, Verb: wire.ControlMessage, Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7")},
					Event:   wire.Event{ID: "m", Source: "ann", Type: "agentd.run.message", Data: json.RawMessage(`{"message":"hurry"}`)},
					Cause:   core.Cause{Stream: "AGENTD_IN", Sequence: 9, EventID: "m"}, Delivered: i + 1, Received: now + c.received.Milliseconds(),
				})
			}
			entries := journal(t, r, "order 7")[before:]
			if c.want == heard {
				if v != (runner.Verdict{}) || len(entries) != 1 || entries[0].Kind != core.KindSteered {
					t.Errorf("the message is settled with %+v, and has made the entries %+v; want one that says that the run has heard it", v, entries)
				}
				return
			}
			if v.Settlement != runner.Reject || v.Problem.Code != sdk.CodeUnknownRun || !strings.Contains(v.Problem.Message, c.want) || len(entries) != 0 {
				t.Errorf("the message is settled with %+v, and has made %d entries; want it refused, because the run %s", v, len(entries), c.want)
			}
		})
	}
}

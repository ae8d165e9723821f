package provision

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/streams"
	"agentd/internal/days"
	"agentd/internal/finding"
	"agentd/sdk"
)

// limit gives a stream a limit of its own, as an operator may.
func limit(t *testing.T, c *broker.Conn, stream string, set func(*jetstream.StreamConfig)) {
	t.Helper()
	s, err := c.JetStream().Stream(brokertest.Context(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	set(&cfg)
	if _, err := c.JetStream().UpdateStream(brokertest.Context(t), cfg); err != nil {
		t.Fatal(err)
	}
}

// full are the streams without room that others than workers publish to.
func full(t *testing.T, c *broker.Conn) []string {
	t.Helper()
	rooms, err := c.Rooms(brokertest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rooms {
		if strings.HasPrefix(r.Full, "stream "+r.Stream+" takes no more: ") && strings.HasSuffix(r.Full, streams.Unbounded(r.Stream, 0)) {
			names = append(names, r.Stream)
		} else if r.Full != "" {
			t.Errorf("%+v", r)
		}
	}
	return names
}

// What a run waits for stays where somebody bounds its stream: what is new waits for room, and workers and doctor say so.
func TestStreams_KeepWhatIsThereWhenTheyAreFull(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"AGENTD_START", "AGENTD_IN", "AGENTD_OUT", "AGENTD_DONE", "AGENTD_RUN"} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			c := alone(t)
			apply(t, c, testPlan)
			limit(t, c, stream, func(cfg *jetstream.StreamConfig) { cfg.MaxBytes, cfg.Discard = 3<<20, jetstream.DiscardOld })
			if got := codes(t, c, testPlan); !slices.Equal(got, []string{"discards_old"}) {
				t.Errorf("doctor finds %v of a limit at which what is oldest is removed", got)
			}
			apply(t, c, testPlan)
			if got := codes(t, c, testPlan); got != nil {
				t.Errorf("doctor finds %v of a limit that is not reached", got)
			}
			if err := c.Writable(brokertest.Context(t)); err != nil {
				t.Errorf("with room: %v", err)
			}

			prefix := map[string]string{"AGENTD_START": "agentd.start", "AGENTD_IN": "agentd.in", "AGENTD_OUT": "agentd.out", "AGENTD_DONE": "agentd.done", "AGENTD_RUN": "agentd.run"}[stream]
			var refused error
			for range 8 {
				m := &nats.Msg{Subject: prefix + ".x", Data: []byte(strings.Repeat("x", 512<<10))}
				if _, refused = c.JetStream().PublishMsg(brokertest.Context(t), m); refused != nil {
					break
				}
			}
			if refused == nil || !strings.Contains(refused.Error(), "maximum bytes exceeded") {
				t.Errorf("4 MiB into 3: %v", refused)
			}
			s, err := c.JetStream().Stream(brokertest.Context(t), stream)
			if err != nil || s.CachedInfo().State.FirstSeq != 1 {
				t.Errorf("%v; the first message is %d", err, s.CachedInfo().State.FirstSeq)
			}
			shared := stream == "AGENTD_START" || stream == "AGENTD_IN" // clients fill these: runs go on
			severity := finding.SeverityError
			if shared {
				severity = finding.SeverityWarning
			}
			findings, err := Verify(brokertest.Context(t), c, testPlan)
			if err != nil || len(findings) != 1 || findings[0].Code != "stream_full" || findings[0].Severity != severity {
				t.Errorf("doctor finds %+v of a full stream, %v", findings, err)
			}
			err = c.Writable(brokertest.Context(t))
			if shared && err != nil || !shared && (!isCode(err, sdk.CodeUnavailable) || !strings.Contains(err.Error(), "stream "+stream+" takes no more")) {
				t.Errorf("full: %v", err)
			}
			if got, want := full(t, c), map[bool][]string{true: {stream}}[shared]; !slices.Equal(got, want) {
				t.Errorf("of those that clients publish to, %v have no room; want %v", got, want)
			}
			limit(t, c, stream, func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = -1 })
			if err := c.Writable(brokertest.Context(t)); err != nil {
				t.Errorf("with room again: %v", err)
			}
			if got := full(t, c); got != nil {
				t.Errorf("with room again %v have none", got)
			}
		})
	}
}

// The server gives timers no choice but to make room, so that a limit is found before it is reached, and said when it is.
func TestStreams_TimersHaveNoLimit(t *testing.T) {
	t.Parallel()
	c := alone(t)
	apply(t, c, testPlan)
	limit(t, c, "AGENTD_TMR", func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 1 })
	apply(t, c, testPlan)
	findings, err := Verify(brokertest.Context(t), c, testPlan)
	if err != nil || len(findings) != 1 || findings[0].Code != "discards_old" || findings[0].Severity != finding.SeverityError ||
		findings[0].Remedy != "run: nats stream edit AGENTD_TMR --max-bytes=-1 --max-msgs=-1 --max-msgs-per-subject=-1" {
		t.Errorf("%+v, %v", findings, err)
	}
	if _, err := c.JetStream().Publish(brokertest.Context(t), "agentd.tmr.x", nil); err != nil {
		t.Fatal(err)
	}
	err = c.Writable(brokertest.Context(t))
	if !isCode(err, sdk.CodeUnavailable) || !strings.Contains(err.Error(), "AGENTD_TMR removes what is oldest, such as what a run waits for: it has 1 of the 1 messages") {
		t.Errorf("full: %v", err)
	}
}

// A stream that has long removed what is oldest is at its limit: it would take nothing from the moment on at which it is to refuse what is new.
func TestApply_LeavesAStreamAtItsLimitAsItIs(t *testing.T) {
	t.Parallel()
	const bytes, five = "it has 2621655 of the 3145728 bytes that it may have (max_bytes)", "it has 5 of the 5 messages that it may have (max_msgs)"
	for name, test := range map[string]struct {
		set         func(*jetstream.StreamConfig)
		limit, then string
	}{
		"bytes":    {func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = 3 << 20 }, bytes, bytes},
		"messages": {func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 5 }, five, five},
		"soon messages": {
			func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 10 },
			"it has 9 of the 10 messages that it may have (max_msgs)", "it has 10 of the 10 messages that it may have (max_msgs)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := provisioned(t)
			limit(t, c, "AGENTD_DONE", func(cfg *jetstream.StreamConfig) {
				test.set(cfg)
				cfg.Discard, cfg.MaxAge = jetstream.DiscardOld, days.Day
			})
			publish := func() error {
				_, err := c.JetStream().Publish(brokertest.Context(t), "agentd.done.x", make([]byte, 512<<10))
				return err
			}
			for range 9 {
				mustPublish(t, publish())
			}
			remedy := "raise its limits, or run: nats stream edit AGENTD_DONE --max-bytes=-1 --max-msgs=-1 " +
				"--max-msgs-per-subject=-1; then run: agentd provision"
			const why = "it goes on removing what is oldest, because with discard new it would soon take nothing: "
			for _, want := range []Change{
				{"stream", "AGENTD_DONE", "updated", "max_age 24h → 37d; " + why + test.limit + "; " + remedy},
				{"stream", "AGENTD_DONE", "kept", why + test.then + "; " + remedy},
			} {
				if changes := apply(t, c, testPlan); !slices.Equal(changes, []Change{want}) {
					t.Errorf("provision: %+v\nwant %+v", changes, want)
				}
				mustPublish(t, publish())
			}
			findings, err := Verify(brokertest.Context(t), c, testPlan)
			if err != nil || len(findings) != 1 || findings[0].Severity != finding.SeverityError || findings[0].Remedy != remedy {
				t.Errorf("doctor: %+v, %v", findings, err)
			}
			limit(t, c, "AGENTD_DONE", func(cfg *jetstream.StreamConfig) { cfg.MaxBytes, cfg.MaxMsgs = 64<<20, 64 })
			if changes := apply(t, c, testPlan); !slices.Equal(changes, []Change{{"stream", "AGENTD_DONE", "updated", "discard DiscardOld → DiscardNew"}}) {
				t.Errorf("provision with room: %+v", changes)
			}
			mustPublish(t, publish())
			if got := codes(t, c, testPlan); got != nil {
				t.Errorf("doctor with room finds %v", got)
			}
		})
	}
}

// At a limit of each subject the server removes what is oldest there, whatever it is told to discard.
func TestVerify_FindsALimitOfEachSubject(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"AGENTD_RUN", "AGENTD_TMR"} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			c := provisioned(t)
			limit(t, c, stream, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgsPerSubject = 5 })
			want := []finding.Finding{finding.Error("subject_limit",
				"stream "+stream+" has a limit of 5 messages on a subject (max_msgs_per_subject), at which it removes the oldest of them, such as an entry of a journal",
				"run: nats stream edit "+stream+" --max-bytes=-1 --max-msgs=-1 --max-msgs-per-subject=-1")}
			if findings, err := Verify(brokertest.Context(t), c, testPlan); err != nil || !slices.Equal(findings, want) {
				t.Errorf("%+v, %v", findings, err)
			}
			if stream == "AGENTD_TMR" {
				return
			}
			limit(t, c, stream, func(cfg *jetstream.StreamConfig) { cfg.DiscardNewPerSubject = true })
			want[0].Message = "stream " + stream + " has a limit of 5 messages on a subject (max_msgs_per_subject), at which it takes no more of them, such as the next entry of a journal"
			if findings, err := Verify(brokertest.Context(t), c, testPlan); err != nil || !slices.Equal(findings, want) {
				t.Errorf("where what is new is refused: %+v, %v", findings, err)
			}
		})
	}
}

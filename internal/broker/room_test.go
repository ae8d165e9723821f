package broker

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
	"agentd/sdk"
)

// limit gives a stream a limit of its own, as an operator may.
func limit(t *testing.T, c *Conn, stream string, set func(*jetstream.StreamConfig)) {
	t.Helper()
	s, err := c.js.Stream(testContext(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	set(&cfg)
	if _, err := c.js.UpdateStream(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
}

// What a run waits for stays where somebody bounds its stream: what is new waits for room, and workers and doctor say so.
func TestStreams_KeepWhatIsThereWhenTheyAreFull(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"AGENTD_START", "AGENTD_IN", "AGENTD_OUT", "AGENTD_DONE", "AGENTD_RUN"} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
			provision(t, c, testPlan)
			limit(t, c, stream, func(cfg *jetstream.StreamConfig) { cfg.MaxBytes, cfg.Discard = 3<<20, jetstream.DiscardOld })
			if got := codes(t, c, testPlan); !slices.Equal(got, []string{"discards_old"}) {
				t.Errorf("doctor finds %v of a limit at which what is oldest is removed", got)
			}
			provision(t, c, testPlan)
			if got := codes(t, c, testPlan); got != nil {
				t.Errorf("doctor finds %v of a limit that is not reached", got)
			}
			if err := c.Writable(testContext(t)); err != nil {
				t.Errorf("with room: %v", err)
			}

			prefix := map[string]string{"AGENTD_START": "agentd.start", "AGENTD_IN": "agentd.in", "AGENTD_OUT": "agentd.out", "AGENTD_DONE": "agentd.done", "AGENTD_RUN": "agentd.run"}[stream]
			var refused error
			for range 8 {
				m := &nats.Msg{Subject: prefix + ".x", Data: []byte(strings.Repeat("x", 512<<10))}
				if _, refused = c.js.PublishMsg(testContext(t), m); refused != nil {
					break
				}
			}
			if refused == nil || !strings.Contains(refused.Error(), "maximum bytes exceeded") {
				t.Errorf("4 MiB into 3: %v", refused)
			}
			s, err := c.js.Stream(testContext(t), stream)
			if err != nil || s.CachedInfo().State.FirstSeq != 1 {
				t.Errorf("%v; the first message is %d", err, s.CachedInfo().State.FirstSeq)
			}
			if got := codes(t, c, testPlan); !slices.Equal(got, []string{"stream_full"}) {
				t.Errorf("doctor finds %v of a full stream", got)
			}
			err = c.Writable(testContext(t))
			if !isCode(err, sdk.CodeUnavailable) || !strings.Contains(err.Error(), "stream "+stream+" takes no more") {
				t.Errorf("full: %v", err)
			}
			limit(t, c, stream, func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = -1 })
			if err := c.Writable(testContext(t)); err != nil {
				t.Errorf("with room again: %v", err)
			}
		})
	}
}

// The server gives timers no choice but to make room, so that a limit is found before it is reached, and said when it is.
func TestStreams_TimersHaveNoLimit(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	provision(t, c, testPlan)
	limit(t, c, "AGENTD_TMR", func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 1 })
	provision(t, c, testPlan)
	findings, err := c.Verify(testContext(t), testPlan)
	if err != nil || len(findings) != 1 || findings[0].Code != "discards_old" || findings[0].Severity != SeverityError ||
		findings[0].Remedy != "run: nats stream edit AGENTD_TMR --max-bytes=-1 --max-msgs=-1" {
		t.Errorf("%+v, %v", findings, err)
	}
	if _, err := c.js.Publish(testContext(t), "agentd.tmr.x", nil); err != nil {
		t.Fatal(err)
	}
	err = c.Writable(testContext(t))
	if !isCode(err, sdk.CodeUnavailable) || !strings.Contains(err.Error(), "AGENTD_TMR removes what is oldest, such as what a run waits for: it has the 1 messages") {
		t.Errorf("full: %v", err)
	}
}

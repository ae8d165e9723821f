package provision

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/streams"
	"agentd/internal/finding"
	"agentd/sdk"
)

// codes are those of the findings.
func codes(t *testing.T, c *broker.Conn, p Plan) []string {
	t.Helper()
	findings, err := Verify(brokertest.Context(t), c, p)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, f := range findings {
		if f.Message == "" || f.Remedy == "" {
			t.Errorf("finding %+v does not say what is wrong and what to do", f)
		}
		codes = append(codes, f.Code)
	}
	return codes
}

func TestVerify_FindsConsumersThatLoseMessages(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	cfg := testPlan.consumers(c.Subjects())[1].config()
	cfg.MaxDeliver, cfg.MaxAckPending, cfg.AckWait = 3, 10, time.Minute
	if _, err := c.JetStream().UpdateConsumer(brokertest.Context(t), "AGENTD_START", cfg); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"max_deliver", "max_ack_pending", "ack_wait"}, codes(t, c, testPlan)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestProblem_IsAnErrorOnlyForErrors(t *testing.T) {
	t.Parallel()
	warning := finding.Finding{Code: "consumer_lag", Severity: finding.SeverityWarning}
	if err := Problem([]finding.Finding{warning}); err != nil {
		t.Errorf("a warning: %v", err)
	}
	err := Problem([]finding.Finding{
		warning, finding.Error("stream_missing", "one", streams.Remedy), finding.Error("max_age", "two", streams.Remedy),
	})
	if !isCode(err, sdk.CodeConfig) || !strings.Contains(err.Error(), "one") || !strings.Contains(err.Error(), "two") ||
		!strings.Contains(err.Error(), "agentd provision") {
		t.Errorf("got %v", err)
	}
}

// A stream of timers that somebody made by hand may lack what timers need: that is said at the start, not when a run first
// waits.
func TestVerify_NamesAStreamThatTakesNoTimers(t *testing.T) {
	t.Parallel()
	for missing, cfg := range map[string]jetstream.StreamConfig{
		"no_schedules": {AllowMsgTTL: true},
		"no_ttl":       {AllowMsgSchedules: true},
	} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			c := alone(t)
			cfg.Name, cfg.Subjects = "AGENTD_TMR", []string{"agentd.tmr.>", "agentd.fire.>"}
			if _, err := c.JetStream().CreateStream(brokertest.Context(t), cfg); err != nil {
				t.Fatal(err)
			}
			err := c.ArmTimer(brokertest.Context(t), "travel.desk", testRun, time.Now().UnixMilli())
			if _, refused := errors.AsType[*jetstream.APIError](err); !refused {
				t.Errorf("arming a timer there: %v; want the server's refusal", err)
			}
			if before := codes(t, c, testPlan); !slices.Contains(before, missing) {
				t.Errorf("%s is not among %v", missing, before)
			}
			apply(t, c, testPlan)
			if after := codes(t, c, testPlan); after != nil {
				t.Errorf("after provisioning: %v", after)
			}
			if err := c.ArmTimer(brokertest.Context(t), "travel.desk", testRun, time.Now().UnixMilli()); err != nil {
				t.Fatal(err)
			}
			brokertest.Eventually(t, "the timer fires", func() bool {
				d, err := c.LastDelivery(brokertest.Context(t), streams.Timer, c.Subjects().Fire("travel.desk", testRun))
				return err == nil && d != nil
			})
		})
	}
}

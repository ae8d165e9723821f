package provision

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/streams"
)

// A worker that was killed is noticed within 6 s; one that stands still for three seconds, or whose heartbeat is lost, is not taken for dead.
func TestAckWait_IsShortForWorkersAndLongForServices(t *testing.T) {
	t.Parallel()
	const noticed, atLeast = 6 * time.Second, 500 * time.Millisecond // the server looks as often
	if streams.AckWait+atLeast > noticed || streams.AckWait < 2*streams.Heartbeat+time.Second || streams.CallWait < 2*streams.CallHeartbeat+time.Second {
		t.Errorf("a delivery lasts %s with heartbeats every %s, and a call %s with heartbeats every %s", streams.AckWait, streams.Heartbeat, streams.CallWait, streams.CallHeartbeat)
	}
	for _, wait := range []time.Duration{streams.AckWait, streams.CallWait} {
		if wait%time.Second == 0 {
			t.Errorf("%s is a whole second: deaths that keep step with it meet every redelivery", wait)
		}
	}
	c := alone(t)
	plan := testPlan
	plan.AckWait, plan.Webhooks = 0, []Webhook{{Name: "pager", Domains: []string{"*"}}}
	apply(t, c, plan)
	got := map[string]time.Duration{}
	for _, ref := range plan.Consumers(c.Subjects()) {
		consumer, err := c.JetStream().Consumer(brokertest.Context(t), streams.Name(c.Subjects(), ref.Zone), ref.Name)
		if err != nil {
			t.Fatal(err)
		}
		got[consumer.CachedInfo().Stream+"/"+ref.Name] = consumer.CachedInfo().Config.AckWait
	}
	want := map[string]time.Duration{
		"AGENTD_START/unrouted": streams.AckWait, "AGENTD_START/agent_travel_desk": streams.AckWait, "AGENTD_IN/agent_travel_desk": streams.AckWait,
		"AGENTD_TMR/agent_travel_desk": streams.AckWait, "AGENTD_OUT/agent_travel_desk": streams.AckWait,
		"AGENTD_OUT/svc_airline_airline_book": streams.CallWait, "AGENTD_OUT/hook_pager": streams.CallWait,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("how long deliveries last (-want +got):\n%s", diff)
	}
}

// Consumers keep what they were made with until somebody provisions: doctor and a dry run say what that would change.
func TestApply_SaysHowLongDeliveriesWillLast(t *testing.T) {
	t.Parallel()
	c := alone(t)
	older := Plan{AckWait: streams.CallWait, Agents: testPlan.Agents, Services: testPlan.Services}
	apply(t, c, older)
	now := older
	now.AckWait = 0
	var want []Change
	for _, name := range []string{
		"AGENTD_START/unrouted", "AGENTD_START/agent_travel_desk", "AGENTD_IN/agent_travel_desk", "AGENTD_TMR/agent_travel_desk",
		"AGENTD_OUT/agent_travel_desk",
	} {
		want = append(want, Change{"consumer", name, "updated", "ack_wait 14.3s → 5.3s"})
	}
	would, err := Planned(brokertest.Context(t), c, now)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, would); diff != "" {
		t.Errorf("a dry run (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Repeat([]string{"ack_wait"}, len(want)), codes(t, c, now)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, apply(t, c, now)); diff != "" {
		t.Errorf("provisioned (-want +got):\n%s", diff)
	}
	if left := codes(t, c, now); len(left) > 0 {
		t.Errorf("still found: %v", left)
	}
}

package broker

import (
	"testing"

	"agentd/internal/broker/embedded"
)

func TestConn_CountsItsTraffic(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: server})
	apply(t, c, testPlan)
	call(t, c, "the-first-has-consumers-looked-at")
	eventually(t, "that is noted", func() bool {
		noted, err := c.Note(testContext(t), c.inPlaceNote())
		return err == nil && string(noted) == c.Server()
	})
	before := c.Traffic()
	mustPublish(t, c.Publish(testContext(t), c.Subjects().Call(testCall), event("e")))
	after := c.Traffic()
	if after.Sent != before.Sent+1 || after.Received != before.Received+1 || after.SentBytes < before.SentBytes+100 {
		t.Errorf("a publish and its confirmation are %+v after %+v", after, before)
	}
	if d, err := c.RoundTrip(); err != nil || d <= 0 {
		t.Errorf("a round trip takes %s: %v", d, err)
	}
}

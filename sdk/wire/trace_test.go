package wire_test

import (
	"regexp"
	"testing"

	"agentd/sdk/wire"
)

func TestEventTrace_KeepsTheTraceAndFollowsFromTheEvent(t *testing.T) {
	t.Parallel()
	const init = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	got := wire.EventTrace(init, "c1-0-abc")
	if !regexp.MustCompile(`^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01$`).MatchString(got) || got == init {
		t.Errorf("got %s", got)
	}
	if again := wire.EventTrace(init, "c1-0-abc"); again != got {
		t.Errorf("another worker would write %s, not %s", again, got)
	}
	if other := wire.EventTrace(init, "c1-1-abc"); other == got {
		t.Error("two events have one span")
	}
	for _, odd := range []string{"", "mine", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", init + "-more", "ff" + init[2:]} {
		if got := wire.EventTrace(odd, "c1-0-abc"); got != odd {
			t.Errorf("EventTrace(%q) is %q; want it as it is", odd, got)
		}
	}
}

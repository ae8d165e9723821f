package show

import (
	"testing"

	"agentd/sdk"
)

// What has no type or no time of its own is shown without.
func TestWaitingCall_ShowsWhatItHas(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]WaitingCall{
		"refund (shop.refund)": {Tool: "refund", Type: "shop.refund"},
		"ask":                  {Tool: "ask"},
		"permission for refund (agentd.permission.request), due in 0s": {Tool: "refund", Type: sdk.TypePermissionRequest, Due: 1},
	} {
		if got := c.text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

package sdk_test

import (
	"math"
	"testing"

	"agentd/sdk"
)

func TestUsage_AddsWhatWasUsed(t *testing.T) {
	t.Parallel()
	u := sdk.Usage{Prompt: 10, Completion: 1, CacheRead: math.MaxInt64, CacheWrite: math.MaxInt64 - 1}
	u.Add(sdk.Usage{Prompt: 5, Completion: -3, CacheRead: 1, CacheWrite: math.MaxInt64})
	if want := (sdk.Usage{Prompt: 15, Completion: 1, CacheRead: math.MaxInt64, CacheWrite: math.MaxInt64}); u != want {
		t.Errorf("the sum is %+v, want %+v", u, want)
	}
}

package worker

import (
	"strings"
	"sync/atomic"
	"testing"
)

func TestParallel_PanicReachesTheCallerWhenAllHaveReturned(t *testing.T) {
	t.Parallel()
	var returned atomic.Bool
	panicked := make(chan struct{})
	defer func() {
		text, _ := recover().(string)
		if !strings.HasPrefix(text, "boom") || !strings.Contains(text, "env_test.go") {
			t.Errorf("the panic is %q, want the function's with its stack", text)
		}
		if !returned.Load() {
			t.Error("the other function had not returned")
		}
	}()
	realEnv{}.Parallel(
		func() {
			defer close(panicked)
			panic("boom")
		},
		func() {
			<-panicked
			returned.Store(true)
		},
	)
	t.Error("no panic reached the caller")
}

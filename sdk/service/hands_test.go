package service

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
)

// whose names the goroutine that it is called in.
func whose() string {
	trace := make([]byte, 64)
	name, _, _ := bytes.Cut(trace[:runtime.Stack(trace, false)], []byte("["))
	return string(name)
}

func TestHands_TakeOneCallAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHands()
		defer h.end()
		var done []string
		finish := make(chan struct{})
		call := func() {
			done = append(done, whose())
			<-finish
		}
		for range 2 {
			h.do(call)
			synctest.Wait()
		}
		if len(done) != 2 || done[0] == done[1] {
			t.Fatalf("two calls at a time are handled by %q", done)
		}
		finish <- struct{}{}
		synctest.Wait()
		h.do(call)
		synctest.Wait()
		close(finish)
		if len(done) != 3 || done[2] != done[0] && done[2] != done[1] {
			t.Errorf("a third is handled by the last of %q", done)
		}
	})
}

func TestHands_OneThatIsLostIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHands()
		defer h.end()
		h.do(runtime.Goexit)
		synctest.Wait()
		handled := false
		h.do(func() { handled = true })
		synctest.Wait()
		if !handled {
			t.Error("nobody handles the next call")
		}
	})
}

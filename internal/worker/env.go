package worker

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/retry"
)

// realEnv is runner.Env on the broker's clock, goroutines and randomness.
type realEnv struct{ conn *broker.Conn }

// Now is the broker's time: workers on several machines date what is in one journal.
func (e realEnv) Now() int64 { return e.conn.Now() }

func (realEnv) Sleep(ctx context.Context, d time.Duration) error { return retry.Sleep(ctx, d) }

func (realEnv) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Parallel panics with what one of the functions panicked with, so that the caller can recover from it as if there were
// no goroutines.
func (realEnv) Parallel(fs ...func()) {
	panics := make(chan string, len(fs))
	caught := func(f func()) {
		defer func() {
			if p := recover(); p != nil {
				panics <- fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		f()
	}
	var wg sync.WaitGroup
	for i, f := range fs {
		if i > 0 {
			wg.Go(func() { caught(f) })
		}
	}
	if len(fs) > 0 {
		caught(fs[0]) // here: the stack of this goroutine has grown already
	}
	wg.Wait()
	select {
	case p := <-panics:
		panic(p)
	default:
	}
}

func (realEnv) Beat(f func(), d time.Duration, beat func() bool) {
	defer broker.Beat(d, beat)()
	f()
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func (realEnv) Random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return lowerBase32.EncodeToString(b[:])
}

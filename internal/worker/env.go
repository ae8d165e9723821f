package worker

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"sync"
	"time"
)

// realEnv is runner.Env on the real clock, goroutines and randomness.
type realEnv struct{}

// Now is the wall clock: deadlines of runs outlive the process.
func (realEnv) Now() int64 { return time.Now().UnixMilli() }

func (realEnv) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (realEnv) Parallel(fs ...func()) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(f)
	}
	wg.Wait()
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func (realEnv) Random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return lowerBase32.EncodeToString(b[:])
}

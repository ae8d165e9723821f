package storetest

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// Benchmark measures what a step costs a store: entries of 4 KiB, by one writer and by 32, and reads of the head.
// durability says in the results how it was configured.
func Benchmark(b *testing.B, durability string, open func(b *testing.B) runner.Store) {
	b.Helper()
	data := string(bytes.Repeat([]byte("x"), 4<<10))
	b.Run(durability, func(b *testing.B) {
		for _, writers := range []int{1, 32} {
			b.Run(fmt.Sprintf("Append/writers=%d", writers), func(b *testing.B) { benchmarkAppend(b, open(b), writers, data) })
		}
		b.Run("Head", func(b *testing.B) {
			s, run := open(b), wire.NewRunKey("trip")
			if _, err := s.Append(b.Context(), run, runner.Version{}, NextRecord(runner.Version{}, data)); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := s.Head(b.Context(), run); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

func benchmarkAppend(b *testing.B, s runner.Store, writers int, data string) {
	var writer atomic.Int64
	b.SetParallelism(writers) // a multiple of GOMAXPROCS, so at least as many
	if writers == 1 {
		run := wire.NewRunKey("trip")
		var base runner.Version
		for b.Loop() {
			v, err := s.Append(b.Context(), run, base, NextRecord(base, data))
			if err != nil {
				b.Fatal(err)
			}
			base = v
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		run := wire.NewRunKey(fmt.Sprint("trip ", writer.Add(1)))
		var base runner.Version
		for pb.Next() {
			v, err := s.Append(b.Context(), run, base, NextRecord(base, data))
			if err != nil {
				b.Error(err)
				return
			}
			base = v
		}
	})
}

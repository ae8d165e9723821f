package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// kept is that the machine kept the driver waiting by itself: for its disk, to write a byte, or for a processor, after a
// timer. What servers and workers do is as late then.
type kept struct {
	at              time.Time
	disk, processor time.Duration
}

const (
	// every is how often the driver looks how long the machine takes.
	every = 50 * time.Millisecond
	// worthNoting is how long the machine may take without a note.
	worthNoting = 100 * time.Millisecond
)

// machine notes when the machine is slow, in whose directory the servers write.
func (w *world) machine(ctx context.Context) error {
	f, err := os.Create(filepath.Join(w.dir, "machine"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nobody reads it
	for ctx.Err() == nil {
		began := time.Now()
		pause(ctx, every)
		due := time.Now()
		if _, err := f.WriteAt([]byte{0}, 0); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if k := (kept{began, time.Since(due), due.Sub(began) - every}); max(k.disk, k.processor) > worthNoting {
			w.hurts.keeps(k)
		}
	}
	return nil
}

func (h *hurts) keeps(k kept) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, k)
}

// slowness says how long the machine itself was slow while something took so long from a time on.
func (h *hurts) slowness(from time.Time, took time.Duration) string {
	var disk, processor time.Duration
	for _, k := range h.kept {
		if k.at.Add(k.processor+k.disk).After(from) && k.at.Before(from.Add(took)) {
			disk, processor = disk+k.disk, processor+k.processor
		}
	}
	return fmt.Sprintf("the machine took %s for a byte to its disk and %s to keep a timer", disk.Round(time.Millisecond), processor.Round(time.Millisecond))
}

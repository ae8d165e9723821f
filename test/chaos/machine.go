package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// delay is that the machine itself had the driver wait: for its disk, to write a byte, or for a processor, after a timer. What
// servers and workers do is as late then.
type delay struct {
	at              time.Time
	disk, processor time.Duration
}

const (
	// lookEvery is how often the driver looks how long the machine takes.
	lookEvery = 50 * time.Millisecond
	// leastDelay is how long the machine may take without a note.
	leastDelay = 100 * time.Millisecond
)

// machine notes when the machine is slow. The byte goes to the directory that the servers write to.
func (w *world) machine(ctx context.Context) error {
	f, err := os.Create(filepath.Join(w.dir, "machine"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nobody reads it
	for ctx.Err() == nil {
		began := time.Now()
		pause(ctx, lookEvery)
		due := time.Now()
		if _, err := f.WriteAt([]byte{0}, 0); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if d := (delay{began, time.Since(due), due.Sub(began) - lookEvery}); max(d.disk, d.processor) > leastDelay {
			w.hurts.delayed(d)
		}
	}
	return nil
}

func (h *hurts) delayed(d delay) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delays = append(h.delays, d)
}

// slowness says how long the machine itself delayed what took so long from a time on.
func (h *hurts) slowness(from time.Time, took time.Duration) string {
	var disk, processor time.Duration
	for _, d := range h.delays {
		if d.at.Add(d.processor+d.disk).After(from) && d.at.Before(from.Add(took)) {
			disk, processor = disk+d.disk, processor+d.processor
		}
	}
	return fmt.Sprintf("the machine took %s for a byte to its disk and %s to keep a timer", disk.Round(time.Millisecond), processor.Round(time.Millisecond))
}

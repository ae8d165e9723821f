package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// What would not count is refused: a word before the flags ends them.
func TestRead_RefusesWhatWouldNotCount(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"run -d 1h":            `"run" is no flag`,
		"-d 1h jetstream":      `"jetstream" is no flag`,
		"-store rocks":         `-store "rocks": want jetstream or redis`,
		"-cluster 2":           "-cluster is 1 or 3",
		"-cluster 3 -set-back": "-cluster is 1 or 3, and 1 with -set-back",
		"-partitions -1":       "-partitions: ",
		"-d 0s":                "want a duration, workers and runs above 0",
		"-depth 3":             "flag provided but not defined: -depth",
	} {
		if _, err := read(strings.Fields(line), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("chaos %s: %v, want %q", line, err, want)
		}
	}
	o, err := read(strings.Fields("-d 1h -store redis -seed 7 -cluster 3 -partitions 4 -keep /tmp/x"), io.Discard)
	if err != nil || o.faults != time.Hour || o.store != storeRedis || o.seed != 7 || !o.clustered || o.layout.Partitions() != 4 || o.dir != "/tmp/x" {
		t.Errorf("read %+v, %v", o, err)
	}
}

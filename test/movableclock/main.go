// Command movableclock prepares builds in which a process can set its own clock: NATS servers ask package time what time it is, and on one
// machine nothing else tells one of them that it is later than the others think. It writes a copy of that package's file with a Now that
// adds time.Ahead, and prints the argument of -overlay that has the go command build with it:
//
//	go run -overlay "$(go run ./test/movableclock bin/movableclock)" -tags movable_clock ./test/chaos -cluster 3
//
// Monotonic readings, and so timers and what has elapsed, stay as they are, like those of a machine whose clock is set.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// reads is where Now reads the clock. A version of Go that does it otherwise is told of, not passed over.
const reads = "\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"

const adds = `
// Ahead is how many seconds the clock of this process is ahead of the machine's.
var Ahead atomic.Int64
` + reads + "\tsec += Ahead.Load()\n"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: movableclock FOLDER")
		os.Exit(2)
	}
	path, err := prepare(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "movableclock:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// prepare writes the file, which no package of the folder is to have, and the overlay that names it, and returns the overlay's path.
func prepare(ctx context.Context, folder string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("ask where Go is: %w", err)
	}
	original := filepath.Join(string(bytes.TrimSpace(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	movable, err := movable(source)
	if err != nil {
		return "", fmt.Errorf("%s: %w", original, err)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	replaced, overlay := filepath.Join(folder, "time.txt"), filepath.Join(folder, "overlay.json")
	names, err := json.Marshal(map[string]map[string]string{"Replace": {original: replaced}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(replaced, movable, 0o600), os.WriteFile(overlay, names, 0o600))
}

// movable is the source of package time's file with a clock that can be moved.
func movable(source []byte) ([]byte, error) {
	for _, edit := range []struct{ from, to string }{
		{reads, adds},
		{"\nimport (\n", "\nimport (\n\t\"sync/atomic\"\n"},
	} {
		if bytes.Count(source, []byte(edit.from)) != 1 {
			return nil, fmt.Errorf("there is not one %q in it: how is the clock read?", edit.from)
		}
		source = bytes.Replace(source, []byte(edit.from), []byte(edit.to), 1)
	}
	return source, nil
}

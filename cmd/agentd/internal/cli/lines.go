package cli

import (
	"bufio"
	"context"
	"io"
	"strings"
)

// Lines are what somebody types. One goroutine uses them, and others may read the same input, such as an editor, while nobody waits for a line.
type Lines struct {
	in *bufio.Scanner
	// coming is the line that is being read; nil is none. It is closed at the end of the input.
	coming chan string
}

// Input is what comes from the standard input until ctx ends. A read from a terminal cannot be stopped: the goroutine that reads ends with the
// process.
func (a *App) Input(ctx context.Context) io.ReadCloser {
	in, typed := io.Pipe()
	go func() {
		_, err := io.Copy(typed, a.In)
		_ = typed.CloseWithError(err) // it never fails
	}()
	context.AfterFunc(ctx, func() { _ = typed.CloseWithError(ctx.Err()) }) // likewise
	return in
}

// ReadLines returns the lines of an input.
func ReadLines(in io.Reader) *Lines { return &Lines{in: bufio.NewScanner(in)} }

// Next waits for a line, and returns it without blanks around it; ok is false when the input or ctx has ended. A read from a terminal cannot be
// stopped: the line that nobody waits for any more is that of who asks next, and the goroutine that reads it ends with the process.
func (l *Lines) Next(ctx context.Context) (line string, ok bool) {
	if l.coming == nil {
		coming := make(chan string, 1)
		l.coming = coming
		go func() {
			defer close(coming)
			if l.in.Scan() {
				coming <- l.in.Text()
			}
		}()
	}
	select {
	case line, ok = <-l.coming:
		l.coming = nil
		return strings.TrimSpace(line), ok
	case <-ctx.Done():
		return "", false
	}
}

package cli

import (
	"context"
	"io"
	"testing"
)

// Who is interrupted stops waiting at once, and what is typed then is for who asks next.
func TestLines_EndWithTheContext(t *testing.T) {
	t.Parallel()
	in, keyboard := io.Pipe()
	l := ReadLines(in)
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	if line, ok := l.Next(interrupted); ok {
		t.Errorf("who is interrupted gets %q", line)
	}
	if _, err := io.WriteString(keyboard, " yes \nno"); err != nil {
		t.Fatal(err)
	}
	if err := keyboard.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"yes", "no"} {
		if line, ok := l.Next(t.Context()); !ok || line != want {
			t.Errorf("%q, %t; want %q", line, ok, want)
		}
	}
	if line, ok := l.Next(t.Context()); ok {
		t.Errorf("after the end comes %q", line)
	}
}

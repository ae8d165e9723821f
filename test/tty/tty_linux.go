// Package tty is a terminal for tests of what a command shows to people, and of what they type.
package tty

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// Open opens a terminal: command is what a command is given, and person its other end, from which what is shown is read and to which what is typed
// is written. Both are closed with the test.
func Open(t testing.TB) (command, person *os.File) {
	t.Helper()
	person = open(t, "/dev/ptmx")
	control(t, person, syscall.TIOCSPTLCK, 0) // unlocks it
	return open(t, fmt.Sprintf("/dev/pts/%d", control(t, person, syscall.TIOCGPTN, 0))), person
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // a test may have closed it
	return f
}

// control asks the kernel something about a terminal.
func control(t testing.TB, f *os.File, request uintptr, value int32) int32 {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&value)))
	})
	if err != nil || failed != 0 {
		t.Fatal(err, failed)
	}
	return value
}

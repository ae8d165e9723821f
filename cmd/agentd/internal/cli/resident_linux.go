package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// ReleaseProgram takes the pages of the program's own file out of this process. Starting reads most of them, and a program that waits needs
// few; the kernel counts them as its memory until then. They stay in the kernel's cache, from which they come back as they are needed.
//
// What differs from the file stays: pages that the program may write, and those of others that somebody has written, as a loader that moves
// the program, or a debugger that sets a breakpoint.
func ReleaseProgram() error {
	mapped, err := programMappings()
	if err != nil {
		return err
	}
	for _, m := range mapped {
		if m.writable || m.own > 0 {
			continue
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("release %d bytes of the program's file: %w", m.to-m.from, errno)
		}
	}
	return nil
}

// mapping is a part of the program's file in the memory of this process, at addresses from one up to another.
type mapping struct {
	from, to uintptr
	writable bool
	// resident are the KiB that are in memory, and own those of them that are no longer as in the file.
	resident, own int
}

// programMappings reads them from /proc/self/smaps (proc_pid_smaps(5)): a line that begins with the addresses and ends with the path of the
// file, and below it one for each figure.
func programMappings() ([]mapping, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the program's file: %w", err)
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, fmt.Errorf("look at what is in memory: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	var mapped []mapping
	current := &mapping{} // of other files
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		var m mapping
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &m.from, &m.to, &rights); n == 3 {
			m.writable = strings.Contains(rights, "w")
			current = &mapping{}
			if strings.HasSuffix(line, " "+program) {
				mapped = append(mapped, m)
				current = &mapped[len(mapped)-1]
			}
			continue
		}
		if kib, is := figure(line, "Rss:"); is {
			current.resident = kib
		}
		if kib, is := figure(line, "Anonymous:"); is {
			current.own = kib
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("look at what is in memory: %w", err)
	}
	return mapped, nil
}

// figure is the one of a line, in KiB, if it has that name.
func figure(line, name string) (kib int, is bool) {
	rest, is := strings.CutPrefix(line, name)
	if !is {
		return 0, false
	}
	n, _ := fmt.Sscan(rest, &kib)
	return kib, n == 1
}

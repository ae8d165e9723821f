package cli

import (
	"os"
	"syscall"
	"testing"
)

// What has been read of the program's file is no longer counted as its memory, and it goes on: all that follows is read from the file again.
// A page that somebody has written stays as it is, also where it can only be read by then.
func TestReleaseProgram_TakesItsFileOutOfMemory(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	whole := mapFile(t, program, int(info.Size()), syscall.PROT_READ)
	before := 0 // of the bytes that are read
	for i := 0; i < len(whole); i += os.Getpagesize() {
		before += int(whole[i])
	}
	page := mapFile(t, program, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE)
	page[0]++
	want := page[0]
	if err := syscall.Mprotect(page, syscall.PROT_READ); err != nil {
		t.Fatal(err)
	}

	if got := resident(t, len(whole)); got < len(whole)>>10 {
		t.Fatalf("of a file of %d KiB that has been read, %d are in memory", len(whole)>>10, got)
	}
	if err := ReleaseProgram(); err != nil {
		t.Fatal(err)
	}
	if got := resident(t, len(whole)); got > 0 {
		t.Errorf("of a file of %d KiB %d are in memory", len(whole)>>10, got)
	}
	after := 0
	for i := 0; i < len(whole); i += os.Getpagesize() {
		after += int(whole[i])
	}
	if after != before || page[0] != want {
		t.Errorf("the file is read as %d, not %d, and a page that was written begins with %#x, not %#x", after, before, page[0], want)
	}
}

// resident is how many KiB are in memory of the part of the program that has so many bytes.
func resident(t *testing.T, size int) int {
	t.Helper()
	mapped, err := programMappings()
	if err != nil {
		t.Fatal(err)
	}
	pages := os.Getpagesize()
	for _, m := range mapped {
		if int(m.to-m.from) == (size+pages-1)/pages*pages {
			return m.resident
		}
	}
	t.Fatalf("no part of the program has %d bytes: %+v", size, mapped)
	return 0
}

// mapFile has the first bytes of a file in memory, until the test ends.
func mapFile(t *testing.T, name string, size, rights int) []byte {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := syscall.Mmap(int(file.Fd()), 0, size, rights, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(data); err != nil {
			t.Error(err)
		}
	})
	return data
}

//go:build unix

package bench

import (
	"syscall"
	"time"
)

// Processor is how much processor time this process has used; 0 where the system does not tell.
func Processor() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

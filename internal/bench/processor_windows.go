package bench

import (
	"syscall"
	"time"
)

// Processor is how much processor time this process has used; 0 where the system does not tell.
func Processor() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var made, ended, inKernel, inUser syscall.Filetime
	if err := syscall.GetProcessTimes(self, &made, &ended, &inKernel, &inUser); err != nil {
		return 0
	}
	ticks := func(t syscall.Filetime) time.Duration { // of 100 ns
		return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
	}
	return ticks(inKernel) + ticks(inUser)
}

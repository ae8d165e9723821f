//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the process the first of a group, so that launchers such as npx end with what they launch.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it has ended if it is not there
}

//go:build !linux

package cli

// ReleaseProgram does nothing: only Linux is known to count the pages of a program's file as a process' own.
func ReleaseProgram() error { return nil }

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// They are set by the linker for releases; else what the build itself has noted is shown. date is that of the commit.
var version, commit, date string

type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// String is the version on one line.
func (v versionInfo) String() string {
	text := v.Version
	if v.Commit != "" {
		text += fmt.Sprintf(" (commit %.12s of %s)", v.Commit, v.Date)
	}
	return fmt.Sprintf("%s %s %s/%s", text, v.Go, v.OS, v.Arch)
}

// BuildVersion is what the linker or the build says of this program.
func BuildVersion() versionInfo {
	v := versionInfo{Version: version, Commit: commit, Date: date, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok || version != "" {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		}
	}
	return v
}

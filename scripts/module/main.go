// Command module gives the module that it stands in another path, as `make module MODULE=github.com/acme/agentd` does: in the
// imports of Go sources, where Go code names packages by their paths, in Go and go.mod blocks of the documentation, in the go.mod
// files of this module and of those in its folders, and in the linter's rules. Everything else stays as it is, byte by byte:
// subjects, event types and commands that begin with the same word among it.
package main

import (
	"fmt"
	"os"

	"golang.org/x/mod/module"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: module FOLDER PATH, where FOLDER has the go.mod and PATH is the new path, such as github.com/acme/agentd")
		os.Exit(2)
	}
	folder, path := os.Args[1], os.Args[2]
	if err := module.CheckPath(path); err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(2)
	}
	changed, err := rename(folder, path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(1)
	}
	fmt.Printf("%d files name the module %s now\n", changed, path)
}

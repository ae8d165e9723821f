// Command manual writes the man pages of agentd and of its commands into a folder, for releases:
//
//	go run ./cmd/agentd/internal/manual FOLDER DATE VERSION
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra/doc"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/commands"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want: manual FOLDER DATE VERSION, with the date as in 2026-11-22T00:00:00Z; got %q", args)
	}
	date, err := time.Parse(time.RFC3339, args[1])
	if err != nil {
		return err
	}
	root := cli.Root(commands.All()...)
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: "agentd " + args[2], Manual: "agentd"}, args[0])
}

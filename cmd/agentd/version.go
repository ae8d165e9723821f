package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
)

func versionCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := cli.BuildVersion()
			return a.Print(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "agentd %s %s %s/%s\n", v.Version, v.Go, v.OS, v.Arch)
				return err
			})
		},
	}
}

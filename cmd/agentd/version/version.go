// Package version has the command agentd version.
package version

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
)

// Command prints what program this is. `agentd --version` prints the same line.
func Command(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and its date",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := cli.BuildVersion()
			return a.Print(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s version %s\n", cmd.Root().Name(), v)
				return err
			})
		},
	}
}

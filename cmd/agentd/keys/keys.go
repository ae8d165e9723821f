// Package keys is agentd keys.
package keys

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/state/sealed"
)

// Command is agentd keys.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make keys that encrypt the store of runs",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "new",
		Short: "Print a new key",
		Long: "new prints a random key of 32 bytes in base64. Keep it where secrets are kept: in an environment variable or a\n" +
			"file that encryption.keys in agentd.yaml names. Runs that are sealed with a key are lost with it.",
		Example: "  agentd keys new > k1.key\n  export AGENTD_KEY_K1=$(agentd keys new)",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			key := sealed.NewKey()
			return a.Print(map[string]string{"key": key}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, key)
				return err
			})
		},
	})
	return cmd
}

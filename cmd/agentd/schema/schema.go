// Package schema is the command agentd schema.
package schema

import (
	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/config"
	"agentd/internal/contracts"
)

// schemas are the JSON Schemas of the files that agentd reads, by the name of the argument.
var schemas = map[string]func() []byte{"config": config.Schema, "contract": contracts.FileSchema}

// Command is agentd schema.
func Command(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [config|contract]",
		Short: "Print the JSON Schema of agentd.yaml, or of contract files",
		Long: "schema prints the JSON Schema that agentd checks files by: every key with its form, its default and what it is for.\n" +
			"Editors complete and check by it, for example with this line at the top of agentd.yaml:\n\n" +
			"  # yaml-language-server: $schema=agentd.schema.json",
		Example:   "  agentd schema > agentd.schema.json\n  agentd schema contract > contract.schema.json",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"config", "contract"},
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := a.Out.Write(schemas[append(args, "config")[0]]())
			return err
		},
	}
}

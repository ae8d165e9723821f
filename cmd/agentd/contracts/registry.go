package contracts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/contractlint"
	"agentd/internal/contracts"
	"agentd/internal/schema"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// registryCommands are the commands of agentd contracts that work on the registry.
func registryCommands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{
		pushCommand(a), listCommand(a), showCommand(a), removeCommand(a),
	}
}

// isContractFile tells a file from a type or URI in the registry, which may have a range.
func isContractFile(ref string) bool {
	if info, err := os.Stat(ref); err == nil && !info.IsDir() {
		return true
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(ref))
}

// splitReference splits TYPE[@RANGE].
func splitReference(ref string) (name, rangeExpr string) {
	if i := strings.LastIndexByte(ref, '@'); i > 0 {
		return ref[:i], ref[i+1:]
	}
	return ref, ""
}

// registered reads TYPE[@RANGE] from the registry: the whole contract, or the one version that the range means.
func registered(ctx context.Context, r broker.Registry, ref string) (sdk.Contract, error) {
	state, err := r.Read(ctx)
	if err != nil {
		return sdk.Contract{}, err
	}
	name, rangeExpr := splitReference(ref)
	if rangeExpr == "" {
		return state.Contract(name)
	}
	p, err := state.Resolve(name, rangeExpr)
	return p.Contract, err
}

// registeredContract is registered for commands that also take files.
func registeredContract(ctx context.Context, a *cli.App, ref string) (sdk.Contract, error) {
	var contract sdk.Contract
	err := a.WithRegistry(ctx, func(_ *cli.Client, r broker.Registry) (err error) {
		contract, err = registered(ctx, r, ref)
		return err
	})
	if errors.Is(err, &sdk.Error{Code: sdk.CodeContractMissing}) {
		e := sdk.AsError(err)
		return contract, sdk.Errorf(e.Code, "%s; nor is there a file %s", e.Message, ref)
	}
	return contract, err
}

func pushCommand(a *cli.App) *cobra.Command {
	var allowBreaking bool
	cmd := &cobra.Command{
		Use:   "push FILE...",
		Short: "Publish contracts in the registry",
		Long: "push publishes the versions of contract files that the registry does not have, all or none. A published version never\n" +
			"changes: with other content it is refused, whatever the flags. A new version that breaks those who a range such as\n" +
			"^1 brings to it is refused too, with who is broken by which field, unless --allow-breaking says that it is meant.\n" +
			"A version that was removed is published again with the content it had.",
		Example: "  agentd contracts push contracts/*.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, file := range args {
				if !isContractFile(file) {
					return cli.Usagef("%s is not a contract file: want one that ends in .yaml, .yml or .json", file)
				}
			}
			return a.WithRegistry(cmd.Context(), func(_ *cli.Client, r broker.Registry) error {
				return push(cmd.Context(), a, r, args, allowBreaking)
			})
		},
	}
	cmd.Flags().BoolVar(&allowBreaking, "allow-breaking", false, "publish new versions that break who follows a range (never other content for a version)")
	return cmd
}

// pushed is what became of one version.
type pushed struct {
	Type    string             `json:"type"`
	Version string             `json:"version"`
	Outcome broker.Publication `json:"outcome"`
}

func push(ctx context.Context, a *cli.App, r broker.Registry, files []string, allowBreaking bool) error {
	list, err := publishable(ctx, a, files)
	if err != nil {
		return err
	}
	state, err := r.Read(ctx)
	if err != nil {
		return err
	}
	var faults []error
	for _, c := range list {
		plan, err := contractlint.Publish(state, c)
		if err == nil && !allowBreaking {
			err = plan.Breaking()
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return joined(faults)
	}
	result := []pushed{}
	for _, c := range list {
		for _, version := range contracts.Versions(c) {
			outcome, err := r.Restore(ctx, c, version)
			if err != nil {
				return err
			}
			result = append(result, pushed{c.Type, version, outcome})
		}
	}
	return a.Print(result, func(w io.Writer) error {
		for _, p := range result {
			fmt.Fprintf(w, "%s %s@%s\n", p.Outcome, p.Type, p.Version)
		}
		return nil
	})
}

// ruleVersionStep is lint's rule about what breaks from one version to the next. Publishing judges that itself, with what
// is published, and lets it pass where it is meant.
const ruleVersionStep = "version-step"

// publishable reads contract files, and refuses them all when lint finds an error in one.
func publishable(ctx context.Context, a *cli.App, files []string) ([]sdk.Contract, error) {
	results, err := lintAll(ctx, a, files)
	if err != nil {
		return nil, err
	}
	const refused = "nothing was published, because of errors that agentd contracts lint finds:"
	refusal := sdk.Errorf(sdk.CodeConfig, refused)
	unwise := 0
	for _, r := range results {
		for _, f := range r.Findings {
			switch {
			case f.Severity == schema.Note:
			case f.Severity == schema.Warning:
				unwise++
			case f.Rule == ruleFile:
				refusal.Message += fmt.Sprintf("\n  %s: %s", f.Path, f.Message)
			case f.Rule != ruleVersionStep:
				refusal.Message += fmt.Sprintf("\n  %s: %s: %s (%s)", r.Contract, f.Path, f.Message, f.Rule)
			}
		}
	}
	if unwise > 0 && a.Output == cli.OutputText {
		fmt.Fprintf(a.Err, "agentd: %s; see: %s\n", show.Count(unwise, "warning"), a.CommandLine(append([]string{"contracts", "lint"}, files...)...))
	}
	if refusal.Message != refused {
		return nil, refusal
	}
	var list []sdk.Contract
	for _, file := range files {
		c, err := loadContract(ctx, a, file)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(list, func(o sdk.Contract) bool { return o.Type == c.Type }); i >= 0 {
			return nil, sdk.Errorf(sdk.CodeConfig, "%s has the contract %s, which another of the files has too", file, c.Type)
		}
		list = append(list, c)
	}
	return list, nil
}

// joined is several errors of contracts as one that is shown as one.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	whole := &sdk.Error{Code: sdk.CodeConflict, Message: "nothing was published"}
	for _, err := range errs {
		e := sdk.AsError(err)
		whole.Message += "\n" + e.Message
		whole.Faults = append(whole.Faults, e.Faults...)
	}
	return whole
}

func listCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contracts in the registry",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithRegistry(cmd.Context(), func(_ *cli.Client, r broker.Registry) error {
				state, err := r.Read(cmd.Context())
				if err != nil {
					return err
				}
				rows := rowsOf(state)
				return a.Print(rows, func(w io.Writer) error {
					if len(rows) == 0 {
						_, err := fmt.Fprintln(w, "the registry has no contracts; publish one with: "+a.CommandLine("contracts", "push", "FILE"))
						return err
					}
					return writeContracts(w, rows, cli.Columns(w))
				})
			})
		},
	}
}

// contractRow is a contract in a list.
type contractRow struct {
	Type        string   `json:"type"`
	URI         string   `json:"uri"`
	Domain      string   `json:"domain"`
	Description string   `json:"description,omitempty"`
	Versions    []string `json:"versions"`
	// Removed are versions that were taken back.
	Removed []string `json:"removed,omitempty"`
}

func rowsOf(state *contracts.Registry) []contractRow {
	rows := []contractRow{}
	for _, p := range state.List() {
		c := p.Contract
		if len(rows) == 0 || rows[len(rows)-1].Type != c.Type {
			rows = append(rows, contractRow{Type: c.Type, Versions: []string{}})
		}
		row := &rows[len(rows)-1]
		if p.Removed {
			row.Removed = append(row.Removed, p.Version)
		} else {
			row.Versions = append(row.Versions, p.Version)
		}
		if !p.Removed || row.URI == "" { // what belongs to no version is that of the newest
			row.URI, row.Domain, row.Description = c.URI, wire.DomainToken(""), c.Description
			if c.Domain != "" {
				row.Domain = c.Domain
			}
		}
	}
	return rows
}

func writeContracts(w io.Writer, rows []contractRow, columns int) error {
	var t show.Table
	t.Row("TYPE", "VERSIONS", "DOMAIN", "URI")
	for _, r := range rows {
		versions := strings.Join(r.Versions, " ")
		for _, v := range r.Removed {
			versions = strings.TrimSpace(versions + " " + v + " (removed)")
		}
		t.Row(show.Visible(r.Type), show.Visible(versions), show.Visible(r.Domain), show.Visible(r.URI))
	}
	return t.Write(w, "", columns)
}

func showCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "show TYPE[@RANGE]",
		Short: "Show a contract of the registry, as a contract file",
		Long: "show prints a contract with all its versions, or the one version that a range means (^1, 1.2.0, latest). The contract\n" +
			"may be named by its type or its URI.",
		Example:           "  agentd contracts show airline.book@^1\n  agentd contracts show airline.book -o json",
		Args:              cobra.ExactArgs(1),
		Annotations:       map[string]string{cli.OutputYAML: "yes"},
		ValidArgsFunction: completeContracts(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithRegistry(cmd.Context(), func(_ *cli.Client, r broker.Registry) error {
				contract, err := registered(cmd.Context(), r, args[0])
				if err != nil {
					return err
				}
				return printContract(a, contract)
			})
		},
	}
}

// completeContracts completes the types in the registry.
func completeContracts(a *cli.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), cli.Patience)
		defer cancel()
		var types []string
		err := a.WithRegistry(ctx, func(_ *cli.Client, r broker.Registry) error {
			state, err := r.Read(ctx)
			if err != nil {
				return err
			}
			for _, row := range rowsOf(state) {
				types = append(types, row.Type)
			}
			return nil
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return types, cobra.ShellCompDirectiveNoFileComp
	}
}

// printContract prints a contract in the form of a contract file.
func printContract(a *cli.App, c sdk.Contract) error {
	return a.Print(c, func(w io.Writer) error {
		encoded, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("encode contract %s: %w", c.Type, err)
		}
		text, err := toYAML(encoded)
		if err != nil {
			return err
		}
		return cli.WriteText(w, string(text))
	})
}

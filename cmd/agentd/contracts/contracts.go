// Package contracts is agentd contracts: files of contracts and the registry.
package contracts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/config"
	"agentd/internal/contractlint"
	"agentd/internal/contracts"
	"agentd/internal/schema"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/sdk"
)

// Command is agentd contracts.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "contracts",
		Short: "Check, compare and publish contracts",
	}
	cmd.AddCommand(lintCommand(a), diffCommand(a), asyncAPICommand(a))
	cmd.AddCommand(registryCommands(a)...)
	return cmd
}

// loadContract reads the contract that a command's operand names: a file, or TYPE[@RANGE] in the registry.
func loadContract(ctx context.Context, a *cli.App, ref string) (sdk.Contract, error) {
	if isContractFile(ref) {
		return contracts.Load(ref)
	}
	return registeredContract(ctx, a, ref)
}

func lintCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "lint [FILE]...",
		Short: "Find what is wrong or unwise in contracts",
		Long: "lint reads contract files, or those of the configuration, and reports errors, which would surprise whoever relies on\n" +
			"the contract, and warnings. Files need no connection. Exit codes: 0 no error, 4 errors found, 2 a file cannot be read.",
		Example: "  agentd contracts lint contracts/*.yaml\n  agentd contracts lint -c agentd.yaml -o json",
		RunE:    func(cmd *cobra.Command, args []string) error { return lintContracts(cmd.Context(), a, args) },
	}
}

// ruleFile is the rule of what keeps a file from being read as a contract. The path of such a finding is its place in the
// file.
const ruleFile = "file"

// linted is what was found in one contract.
type linted struct {
	Contract string           `json:"contract"`
	Findings []schema.Finding `json:"findings"`
}

func lintContracts(ctx context.Context, a *cli.App, refs []string) error {
	results, err := lintAll(ctx, a, refs)
	if err != nil {
		return err
	}
	if err := a.Print(results, func(w io.Writer) error { return writeLinted(w, results, a.Verbose) }); err != nil {
		return err
	}
	for _, r := range results {
		for _, f := range r.Findings {
			if f.Severity == schema.Error {
				return cli.Exit(cli.ExitFindings)
			}
		}
	}
	return nil
}

func lintAll(ctx context.Context, a *cli.App, refs []string) ([]linted, error) {
	results := []linted{}
	if len(refs) == 0 {
		cfg, err := a.Settings()
		if err != nil {
			return nil, err
		}
		for _, c := range setup.OwnContracts(cfg) {
			results = append(results, linted{c.Type, contractlint.Lint(c)})
		}
		if len(results) == 0 {
			return nil, sdk.Errorf(sdk.CodeConfig, "no contracts to check: name files, or a configuration with --config")
		}
		return results, nil
	}
	for _, ref := range refs {
		c, err := loadContract(ctx, a, ref)
		faults, ok := errors.AsType[config.Faults](err)
		switch {
		case ok:
			r := linted{Contract: ref}
			for _, f := range faults {
				r.Findings = append(r.Findings, schema.Finding{
					Severity: schema.Error, Rule: ruleFile, Path: f.Position.String(), Message: f.Message,
				})
			}
			results = append(results, r)
		case err != nil:
			return nil, err
		default:
			results = append(results, linted{ref, contractlint.Lint(c)})
		}
	}
	return results, nil
}

func writeLinted(w io.Writer, results []linted, notes bool) error {
	wrong, unwise := 0, 0
	for _, r := range results {
		for _, f := range r.Findings {
			if f.Severity == schema.Note && !notes {
				continue
			}
			place := r.Contract + ": " + f.Path
			if f.Rule == ruleFile {
				place = f.Path // editors can jump there
			}
			fmt.Fprintf(w, "%s: %s: %s (%s)\n", show.Visible(place), f.Severity, show.VisibleLines(f.Message), f.Rule)
			if f.Severity == schema.Error {
				wrong++
			}
			if f.Severity == schema.Warning {
				unwise++
			}
		}
	}
	fmt.Fprintf(w, "%s: %s, %s\n", show.Count(len(results), "contract"), show.Count(wrong, "error"), show.Count(unwise, "warning"))
	return nil
}

const (
	failOnBreaking = "breaking"
	failOnAny      = "any"
	failOnNothing  = "none"
)

func diffCommand(a *cli.App) *cobra.Command {
	var failOn string
	failures := []string{failOnBreaking, failOnAny, failOnNothing}
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Tell what a new state of a contract changes for others",
		Long: "diff compares two states of a contract, such as the file of the main branch and of a change to it, or what the registry\n" +
			"has under TYPE[@RANGE] and a file: versions that are gone or have other content, and what each new version changes for\n" +
			"callers and for readers of answers.\n" +
			"Exit codes: 0 done, 4 there are breaking changes, or others that --fail-on names, 2 a contract cannot be read.",
		Example: "  git show main:contracts/book.yaml > old.yaml && agentd contracts diff old.yaml contracts/book.yaml\n" +
			"  agentd contracts diff airline.book contracts/book.yaml",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(failures, failOn) {
				return cli.Usagef("--fail-on %q: want one of %s", failOn, strings.Join(failures, ", "))
			}
			return diffContracts(cmd.Context(), a, args[0], args[1], failOn)
		},
	}
	cmd.Flags().StringVar(&failOn, "fail-on", failOnBreaking, "changes that make the exit code 4: breaking, any or none")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(failures, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func diffContracts(ctx context.Context, a *cli.App, from, to, failOn string) error {
	before, err := loadContract(ctx, a, from)
	if err != nil {
		return err
	}
	after, err := loadContract(ctx, a, to)
	if err != nil {
		return err
	}
	changes := contractlint.Compare(before, after)
	if changes == nil {
		changes = []contractlint.Change{}
	}
	if err := a.Print(changes, func(w io.Writer) error { return writeChanges(w, changes) }); err != nil {
		return err
	}
	for _, c := range changes {
		if failOn == failOnAny || failOn == failOnBreaking && c.Severity == schema.Breaking {
			return cli.Exit(cli.ExitFindings)
		}
	}
	return nil
}

func writeChanges(w io.Writer, changes []contractlint.Change) error {
	counts := map[schema.Severity]int{}
	for _, c := range changes {
		counts[c.Severity]++
		fmt.Fprintf(w, "%s: %s%s\n", c.Severity, show.Visible(changePlace(c)), show.VisibleLines(c.Message))
		if c.Breaks != "" {
			fmt.Fprintf(w, "  breaks %s\n", c.Breaks)
		}
	}
	if len(changes) == 0 {
		fmt.Fprintln(w, "no changes")
		return nil
	}
	fmt.Fprintf(w, "%s: %d breaking, %d compatible, %d editorial\n", show.Count(len(changes), "change"),
		counts[schema.Breaking], counts[schema.Compatible], counts[schema.Editorial])
	return nil
}

// changePlace says where a change is, such as "1.0.0 to 1.1.0, accepts $.nights: ".
func changePlace(c contractlint.Change) string {
	var parts []string
	switch {
	case c.From != "" && c.To != "" && c.From != c.To:
		parts = append(parts, c.From+" to "+c.To)
	case c.From != "" && c.From == c.To:
		parts = append(parts, c.From)
	}
	if place := strings.TrimSpace(c.Side + " " + c.Path); place != "" {
		parts = append(parts, place)
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", ") + ": "
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentd/internal/config"
	"agentd/internal/contracts"
	"agentd/sdk"
)

func (a *app) contractsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "contracts",
		Short: "Check, compare and publish contracts",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.contractsLintCommand(), a.contractsDiffCommand(), a.contractsAsyncAPICommand())
	cmd.AddCommand(a.registryCommands()...)
	return cmd
}

// loadContract reads the contract that a command's operand names: a file, or TYPE[@RANGE] in the registry.
func (a *app) loadContract(ctx context.Context, ref string) (sdk.Contract, error) {
	if isContractFile(ref) {
		return contracts.Load(ref)
	}
	return a.registeredContract(ctx, ref)
}

func (a *app) contractsLintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint [FILE]...",
		Short: "Find what is wrong or unwise in contracts",
		Long: "lint reads contract files, or those of the configuration, and reports errors, which would surprise whoever relies on\n" +
			"the contract, and warnings. Files need no connection. Exit codes: 0 no error, 4 errors found, 2 a file cannot be read.",
		Example: "  agentd contracts lint contracts/*.yaml\n  agentd contracts lint -c agentd.yaml -o json",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.lintContracts(cmd.Context(), args) },
	}
}

// ruleFile is the rule of what keeps a file from being read as a contract. The path of such a finding is its place in the
// file.
const ruleFile = "file"

// linted is what was found in one contract.
type linted struct {
	Contract string              `json:"contract"`
	Findings []contracts.Finding `json:"findings"`
}

func (a *app) lintContracts(ctx context.Context, refs []string) error {
	results, err := a.lintAll(ctx, refs)
	if err != nil {
		return err
	}
	if err := a.print(results, func(w io.Writer) error { return writeLinted(w, results, a.verbose) }); err != nil {
		return err
	}
	for _, r := range results {
		for _, f := range r.Findings {
			if f.Severity == contracts.Error {
				return &exitError{code: exitFindings}
			}
		}
	}
	return nil
}

func (a *app) lintAll(ctx context.Context, refs []string) ([]linted, error) {
	results := []linted{}
	if len(refs) == 0 {
		cfg, err := a.settings()
		if err != nil {
			return nil, err
		}
		for _, c := range ownContracts(cfg) {
			results = append(results, linted{c.Type, contracts.Lint(c)})
		}
		if len(results) == 0 {
			return nil, sdk.Errorf(sdk.CodeConfig, "there are no contracts to check: name files, or a configuration with --config")
		}
		return results, nil
	}
	for _, ref := range refs {
		c, err := a.loadContract(ctx, ref)
		faults, ok := errors.AsType[config.Faults](err)
		switch {
		case ok:
			r := linted{Contract: ref}
			for _, f := range faults {
				r.Findings = append(r.Findings, contracts.Finding{
					Severity: contracts.Error, Rule: ruleFile, Path: f.Position.String(), Message: f.Message,
				})
			}
			results = append(results, r)
		case err != nil:
			return nil, err
		default:
			results = append(results, linted{ref, contracts.Lint(c)})
		}
	}
	return results, nil
}

// ownContracts are those of the configuration without agentd's own.
func ownContracts(cfg *config.Config) []sdk.Contract {
	own := map[string]bool{}
	for _, c := range contracts.Builtin() {
		own[c.URI] = true
	}
	var list []sdk.Contract
	for _, c := range cfg.Contracts {
		if !own[c.URI] {
			list = append(list, c)
		}
	}
	return list
}

func writeLinted(w io.Writer, results []linted, notes bool) error {
	wrong, unwise := 0, 0
	for _, r := range results {
		for _, f := range r.Findings {
			if f.Severity == contracts.Note && !notes {
				continue
			}
			place := r.Contract + ": " + f.Path
			if f.Rule == ruleFile {
				place = f.Path // editors can jump there
			}
			fmt.Fprintf(w, "%s: %s: %s (%s)\n", place, f.Severity, f.Message, f.Rule)
			if f.Severity == contracts.Error {
				wrong++
			}
			if f.Severity == contracts.Warning {
				unwise++
			}
		}
	}
	fmt.Fprintf(w, "%s: %s, %s\n", count(len(results), "contract"), count(wrong, "error"), count(unwise, "warning"))
	return nil
}

const (
	failOnBreaking = "breaking"
	failOnAny      = "any"
)

func (a *app) contractsDiffCommand() *cobra.Command {
	var failOn string
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Tell what a new state of a contract changes for others",
		Long: "diff compares two states of a contract, such as the file of the main branch and of a change to it, or what the registry\n" +
			"has under TYPE[@RANGE] and a file: versions that are gone or have other content, and what each new version changes for\n" +
			"callers and for readers of answers.\n" +
			"Exit codes: 0 done, 4 there are changes that --fail-on names, 2 a contract cannot be read.",
		Example: "  git show main:contracts/book.yaml > old.yaml && agentd contracts diff old.yaml contracts/book.yaml --fail-on breaking\n" +
			"  agentd contracts diff airline.book contracts/book.yaml",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if failOn != "" && failOn != failOnBreaking && failOn != failOnAny {
				return &exitError{exitUsage, fmt.Errorf("--fail-on %q: want %s or %s", failOn, failOnBreaking, failOnAny)}
			}
			return a.diffContracts(cmd.Context(), args[0], args[1], failOn)
		},
	}
	cmd.Flags().StringVar(&failOn, "fail-on", "", "exit with code 4 on breaking changes, or on any: breaking or any")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{failOnBreaking, failOnAny}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func (a *app) diffContracts(ctx context.Context, from, to, failOn string) error {
	before, err := a.loadContract(ctx, from)
	if err != nil {
		return err
	}
	after, err := a.loadContract(ctx, to)
	if err != nil {
		return err
	}
	changes := contracts.Compare(before, after)
	if changes == nil {
		changes = []contracts.Change{}
	}
	if err := a.print(changes, func(w io.Writer) error { return writeChanges(w, changes) }); err != nil {
		return err
	}
	for _, c := range changes {
		if failOn == failOnAny || failOn == failOnBreaking && c.Severity == contracts.Breaking {
			return &exitError{code: exitFindings}
		}
	}
	return nil
}

func writeChanges(w io.Writer, changes []contracts.Change) error {
	counts := map[contracts.Severity]int{}
	for _, c := range changes {
		counts[c.Severity]++
		fmt.Fprintf(w, "%s: %s%s\n", c.Severity, changePlace(c), c.Message)
		if c.Breaks != "" {
			fmt.Fprintf(w, "  breaks %s\n", c.Breaks)
		}
	}
	if len(changes) == 0 {
		fmt.Fprintln(w, "no changes")
		return nil
	}
	fmt.Fprintf(w, "%s: %d breaking, %d compatible, %d editorial\n", count(len(changes), "change"),
		counts[contracts.Breaking], counts[contracts.Compatible], counts[contracts.Editorial])
	return nil
}

// changePlace says where a change is, such as "1.0.0 to 1.1.0, accepts $.nights: ".
func changePlace(c contracts.Change) string {
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

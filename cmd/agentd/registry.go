package main

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
	"text/tabwriter"

	"agentd/sdk/wire"

	"github.com/spf13/cobra"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/contracts"
	"agentd/sdk"
)

// registryCommands are the commands of agentd contracts that work on the registry.
func (a *app) registryCommands() []*cobra.Command {
	return []*cobra.Command{
		a.contractsPushCommand(), a.contractsListCommand(), a.contractsShowCommand(), a.contractsRemoveCommand(),
	}
}

// withRegistry calls do with a connection.
func (a *app) withRegistry(ctx context.Context, do func(*client, broker.Registry) error) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	return c.close(do(c, c.Registry()))
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
func (a *app) registeredContract(ctx context.Context, ref string) (sdk.Contract, error) {
	var contract sdk.Contract
	err := a.withRegistry(ctx, func(_ *client, r broker.Registry) (err error) {
		contract, err = registered(ctx, r, ref)
		return err
	})
	if errors.Is(err, &sdk.Error{Code: sdk.CodeContractMissing}) {
		e := sdk.AsError(err)
		return contract, sdk.Errorf(e.Code, "%s; nor is there a file %s", e.Message, ref)
	}
	return contract, err
}

// lookUp puts what the registry has in the place of the configuration's references, and says which it does not have.
func lookUp(ctx context.Context, r broker.Registry, cfg *config.Config) (missing config.Faults, err error) {
	state, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	for _, ref := range cfg.References {
		if _, err := state.Resolve(ref.Contract, ref.Range); err != nil {
			missing = append(missing, config.Fault{Position: ref.Position, Message: sdk.AsError(err).Message})
		}
	}
	for i, spec := range cfg.Agents {
		if bound, err := contracts.Bind(spec, state); err == nil { // else it is among the missing
			cfg.Agents[i] = bound
		}
	}
	return missing, nil
}

// missingContracts is the error of who cannot go on without them.
func missingContracts(missing config.Faults) error {
	e := sdk.Errorf(sdk.CodeContractMissing,
		"the registry does not have what agents refer to; start the services that publish it, or run: agentd contracts push FILE")
	for _, f := range missing {
		e.Message += "\n  " + f.String()
	}
	return e
}

func (a *app) contractsPushCommand() *cobra.Command {
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
					return &exitError{exitUsage, fmt.Errorf("%s is no contract file: want one that ends in .yaml, .yml or .json", file)}
				}
			}
			return a.withRegistry(cmd.Context(), func(_ *client, r broker.Registry) error {
				return a.push(cmd.Context(), r, args, allowBreaking)
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

func (a *app) push(ctx context.Context, r broker.Registry, files []string, allowBreaking bool) error {
	list, err := a.publishable(ctx, files)
	if err != nil {
		return err
	}
	state, err := r.Read(ctx)
	if err != nil {
		return err
	}
	var faults []error
	for _, c := range list {
		plan, err := state.Publish(c)
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
			outcome, err := r.Publish(ctx, c, version, true)
			if err != nil {
				return err
			}
			result = append(result, pushed{c.Type, version, outcome})
		}
	}
	return a.print(result, func(w io.Writer) error {
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
func (a *app) publishable(ctx context.Context, files []string) ([]sdk.Contract, error) {
	results, err := a.lintAll(ctx, files)
	if err != nil {
		return nil, err
	}
	const refused = "nothing was published, because of errors that agentd contracts lint finds:"
	refusal := sdk.Errorf(sdk.CodeConfig, refused)
	unwise := 0
	for _, r := range results {
		for _, f := range r.Findings {
			switch {
			case f.Severity == contracts.Note:
			case f.Severity == contracts.Warning:
				unwise++
			case f.Rule == ruleFile:
				refusal.Message += fmt.Sprintf("\n  %s: %s", f.Path, f.Message)
			case f.Rule != ruleVersionStep:
				refusal.Message += fmt.Sprintf("\n  %s: %s: %s (%s)", r.Contract, f.Path, f.Message, f.Rule)
			}
		}
	}
	if unwise > 0 && a.output == outputText {
		fmt.Fprintf(a.err, "agentd: %s; see: agentd contracts lint %s\n", count(unwise, "warning"), strings.Join(files, " "))
	}
	if refusal.Message != refused {
		return nil, refusal
	}
	var list []sdk.Contract
	for _, file := range files {
		c, err := a.loadContract(ctx, file)
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

func (a *app) contractsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contracts in the registry",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRegistry(cmd.Context(), func(_ *client, r broker.Registry) error {
				state, err := r.Read(cmd.Context())
				if err != nil {
					return err
				}
				rows := rowsOf(state)
				return a.print(rows, func(w io.Writer) error { return writeContracts(w, rows) })
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

func writeContracts(w io.Writer, rows []contractRow) error {
	if len(rows) == 0 {
		fmt.Fprintln(w, "the registry has no contracts; publish one with: agentd contracts push FILE")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TYPE\tVERSIONS\tDOMAIN\tURI")
	for _, r := range rows {
		versions := strings.Join(r.Versions, " ")
		for _, v := range r.Removed {
			versions = strings.TrimSpace(versions + " " + v + " (removed)")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.Type, versions, r.Domain, r.URI)
	}
	return t.Flush()
}

func (a *app) contractsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show TYPE[@RANGE]",
		Short: "Show a contract of the registry, as a contract file",
		Long: "show prints a contract with all its versions, or the one version that a range means (^1, 1.2.0, latest). The contract\n" +
			"may be named by its type or its URI.",
		Example:           "  agentd contracts show airline.book@^1\n  agentd contracts show airline.book -o json",
		Args:              cobra.ExactArgs(1),
		Annotations:       map[string]string{outputYAML: "yes"},
		ValidArgsFunction: a.completeContracts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRegistry(cmd.Context(), func(_ *client, r broker.Registry) error {
				contract, err := registered(cmd.Context(), r, args[0])
				if err != nil {
					return err
				}
				return a.printContract(contract)
			})
		},
	}
}

// completeContracts completes the types in the registry.
func (a *app) completeContracts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	defer cancel()
	var types []string
	err := a.withRegistry(ctx, func(_ *client, r broker.Registry) error {
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

// printContract prints a contract in the form of a contract file.
func (a *app) printContract(c sdk.Contract) error {
	return a.print(c, func(w io.Writer) error {
		encoded, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("encode contract %s: %w", c.Type, err)
		}
		text, err := toYAML(encoded)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
}

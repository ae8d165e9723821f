// Package check is agentd check.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/approval"
	"agentd/internal/broker"
	"agentd/internal/catalog"
	"agentd/internal/config"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Command is agentd check.
func Command(a *cli.App) *cobra.Command {
	var server bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration without connecting to anything",
		Long: "check reads the configuration with its contracts and prompts and reports everything that is wrong, each with\n" +
			"file, line and column. It connects to nothing, so contracts that are looked up in the registry are only listed, which\n" +
			"is not a fault, unless --server asks for them. Exit codes: 0 nothing wrong, 4 faults found, 2 a file is missing.",
		Example: "  agentd check\n  agentd check examples/traveldesk/agentd.yaml -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				a.Config = args[0]
			}
			return check(cmd.Context(), a, server)
		},
	}
	cmd.Flags().BoolVar(&server, "server", false, "connect to NATS, look up what agents have from the registry, and compare with it what they bring themselves")
	return cmd
}

// checked is the outcome of a check.
type checked struct {
	File      string   `json:"file"`
	Agents    []string `json:"agents"`
	Contracts []string `json:"contracts"`
	// Encryption is nil where nothing is sealed.
	Encryption *checkedEncryption `json:"encryption,omitempty"`
	// References are services that are looked up in the registry.
	References []checkedReference `json:"references,omitempty"`
	Faults     []configFault      `json:"faults"`
	Warnings   []configFault      `json:"warnings,omitempty"`
}

type configFault struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

func check(ctx context.Context, a *cli.App, server bool) error {
	if err := a.Exists(); err != nil {
		return err
	}
	result := checked{File: a.Config, Agents: []string{}, Contracts: []string{}, Faults: []configFault{}}
	cfg, err := config.Load(a.Config)
	faults, ok := errors.AsType[config.Faults](err)
	if err != nil && !ok {
		return err
	}
	result.fault(faults)
	if cfg != nil && server {
		err := a.WithRegistry(ctx, func(_ *cli.Client, r broker.Registry) error {
			missing, err := setup.LookUp(ctx, r, cfg)
			result.fault(missing)
			if err != nil {
				return err
			}
			changed, err := setup.Changed(ctx, r, cfg)
			result.fault(changed)
			return err
		})
		if err != nil {
			return err
		}
	}
	if cfg != nil {
		result.add(cfg)
	}
	if err := a.Print(result, result.write); err != nil {
		return err
	}
	if len(result.Faults) > 0 {
		return cli.Exit(cli.ExitFindings)
	}
	return nil
}

func (r *checked) fault(faults config.Faults) { r.Faults = append(r.Faults, places(faults)...) }

func places(faults config.Faults) []configFault {
	var all []configFault
	for _, f := range faults {
		all = append(all, configFault{f.File, f.Line, f.Column, f.Message})
	}
	return all
}

func (r *checked) add(cfg *config.Config) {
	misnamed, _ := errors.AsType[config.Faults](cfg.CheckTools())
	r.fault(misnamed)
	wrong, unwise := cfg.Lint()
	r.fault(wrong)
	r.Warnings = places(unwise)
	for _, spec := range cfg.Agents {
		r.Agents = append(r.Agents, spec.Name)
		agent := sdk.Agent{Spec: spec}
		for _, server := range cfg.MCP.Agents[spec.Name] {
			agent.Toolsets = append(agent.Toolsets, unconnected(server))
		}
		err := catalog.Check(agent, approval.Options{Grants: approval.NoGrants{}, Identity: cfg.Identity, Keys: cfg.Keys})
		if err != nil && misnamed == nil { // else it may say the same, without the place
			at := cfg.Place(spec.Name)
			r.Faults = append(r.Faults, configFault{at.File, at.Line, at.Column, fmt.Sprintf("agent %s: %s", spec.Name, show.Problem(err))})
		}
	}
	for _, c := range setup.OwnContracts(cfg) {
		ofAgent := func(spec sdk.AgentSpec) bool { return wire.SameURI(spec.Contract.URI, c.URI) } // it goes with its agent
		if !slices.ContainsFunc(cfg.Agents, ofAgent) {
			r.Contracts = append(r.Contracts, c.Type)
		}
	}
	r.addEncryption(cfg.Encryption)
	for _, ref := range cfg.References {
		r.References = append(r.References, r.reference(ref, cfg))
	}
}

func (r *checked) write(w io.Writer) error {
	for _, f := range r.Faults {
		place := f.File
		if f.Line > 0 {
			place = fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
		}
		fmt.Fprintf(w, "%s: %s\n", place, f.Message)
	}
	for _, f := range r.Warnings {
		fmt.Fprintf(w, "%s:%d:%d: warning: %s\n", f.File, f.Line, f.Column, f.Message)
	}
	if len(r.Faults) > 0 {
		fmt.Fprintln(w, show.Count(len(r.Faults), "fault"))
		return nil
	}
	fmt.Fprintf(w, "%s: %s, %s, nothing wrong\n", r.File, show.Count(len(r.Agents), "agent"), show.Count(len(r.Contracts), "contract"))
	r.Encryption.write(w)
	for _, ref := range r.References {
		ref.write(w)
	}
	return nil
}

// checkedReference is a service that is looked up in the registry. Version is empty unless it was.
type checkedReference struct {
	Agent    string `json:"agent"`
	Contract string `json:"contract"`
	Range    string `json:"range"`
	Version  string `json:"version,omitempty"`
	// Similar is a contract in a file that may have been meant.
	Similar string `json:"similar,omitempty"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	place   string
}

func (r *checked) reference(ref config.Reference, cfg *config.Config) checkedReference {
	c := checkedReference{
		Agent: ref.Agent, Contract: ref.Contract, Range: ref.Range, Similar: ref.Similar, Line: ref.Line, Column: ref.Column,
		place: ref.String(),
	}
	for _, spec := range cfg.Agents {
		for _, s := range spec.Services {
			if spec.Name == ref.Agent && s.Range == ref.Range && (s.Contract.Type == ref.Contract || wire.SameURI(s.Contract.URI, ref.Contract)) {
				c.Version = s.Version
			}
		}
	}
	return c
}

func (c checkedReference) write(w io.Writer) {
	state := "is looked up in the registry when the agent is served"
	if c.Similar != "" {
		state += fmt.Sprintf("; did you mean %q?", c.Similar)
	} else {
		state += "; agentd check --server looks now"
	}
	if c.Version != "" {
		state = "is version " + c.Version + " of the registry"
	}
	fmt.Fprintf(w, "%s: registry: agent %s: %s@%s %s\n", c.place, c.Agent, c.Contract, c.Range, state)
}

// addEncryption reads the keys. One that is not there is not a fault: secrets need not be where a configuration is checked.
func (r *checked) addEncryption(e config.Encryption) {
	if e.Current == "" {
		return
	}
	r.Encryption = &checkedEncryption{Current: e.Current, AllowPlaintext: e.AllowPlaintext}
	for _, k := range e.Keys {
		_, err := setup.ReadKey(k)
		if err != nil && !errors.Is(err, config.ErrKeyAbsent) {
			f := k.Fault(err)
			r.Faults = append(r.Faults, configFault{f.File, f.Line, f.Column, f.Message})
		}
		r.Encryption.Keys = append(r.Encryption.Keys, checkedKey{k.ID, k.Source(), err == nil})
	}
}

// unconnected is the name of a toolset, for checks that connect to nothing.
type unconnected string

// Name implements sdk.Toolset.
func (u unconnected) Name() string { return string(u) }

// Tools implements sdk.Toolset.
func (u unconnected) Tools(context.Context) ([]sdk.Tool, error) { return nil, nil }

// Close implements sdk.Toolset.
func (u unconnected) Close() error { return nil }

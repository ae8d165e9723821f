package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"agentd/internal/approval"
	"agentd/internal/catalog"
	"agentd/internal/config"
	"agentd/sdk"
)

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration without connecting to anything",
		Long: "check reads the configuration with its contracts and prompts and reports everything that is wrong, each with\n" +
			"file, line and column. Exit codes: 0 nothing wrong, 4 faults found, 2 there is no such file.",
		Example: "  agentd check\n  agentd check examples/traveldesk/agentd.yaml -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				a.config = args[0]
			}
			return a.check()
		},
	}
}

// checked is the outcome of a check.
type checked struct {
	File      string   `json:"file"`
	Agents    []string `json:"agents"`
	Contracts []string `json:"contracts"`
	// Encryption is nil where nothing is sealed.
	Encryption *checkedEncryption `json:"encryption,omitempty"`
	Faults     []configFault      `json:"faults"`
}

type configFault struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

func (a *app) check() error {
	if _, err := os.Stat(a.config); err != nil {
		return &exitError{exitUsage, fmt.Errorf("configuration: %w", err)}
	}
	result := checked{File: a.config, Agents: []string{}, Contracts: []string{}, Faults: []configFault{}}
	cfg, err := config.Load(a.config)
	faults, ok := errors.AsType[config.Faults](err)
	if err != nil && !ok {
		return err
	}
	for _, f := range faults {
		result.Faults = append(result.Faults, configFault{f.File, f.Line, f.Column, f.Message})
	}
	if cfg != nil {
		result.add(cfg)
	}
	if err := a.print(result, result.write); err != nil {
		return err
	}
	if len(result.Faults) > 0 {
		return &exitError{code: exitFindings}
	}
	return nil
}

func (r *checked) add(cfg *config.Config) {
	for _, spec := range cfg.Agents {
		r.Agents = append(r.Agents, spec.Name)
		if err := catalog.Check(sdk.Agent{Spec: spec}, approval.Options{Grants: approval.NoGrants{}, Identity: cfg.Identity, Keys: cfg.Keys}); err != nil {
			r.Faults = append(r.Faults, configFault{File: r.File, Message: fmt.Sprintf("agent %s: %s", spec.Name, err)})
		}
	}
	for _, c := range cfg.Contracts {
		r.Contracts = append(r.Contracts, c.Type)
	}
	r.addEncryption(cfg.Encryption)
}

func (r *checked) write(w io.Writer) error {
	for _, f := range r.Faults {
		place := f.File
		if f.Line > 0 {
			place = fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
		}
		fmt.Fprintf(w, "%s: %s\n", place, f.Message)
	}
	if len(r.Faults) > 0 {
		fmt.Fprintln(w, count(len(r.Faults), "fault"))
		return nil
	}
	fmt.Fprintf(w, "%s: %s, %s, nothing wrong\n", r.File, count(len(r.Agents), "agent"), count(len(r.Contracts), "contract"))
	r.Encryption.write(w)
	return nil
}

package contracts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/address"
	"agentd/internal/config"
	"agentd/internal/contracts/asyncapi"
	"agentd/internal/setup"
	"agentd/sdk"
	"agentd/sdk/wire"
)

type asyncAPIFlags struct {
	title, version, view string
}

func asyncAPICommand(a *cli.App) *cobra.Command {
	var f asyncAPIFlags
	cmd := &cobra.Command{
		Use:   "asyncapi [FILE]...",
		Short: "Describe agents and services as an AsyncAPI document",
		Long: "asyncapi writes an AsyncAPI " + asyncapi.Version + " document of the configuration's agents and contracts, and of the contract\n" +
			"FILEs. By --view its operations are those of agentd's workers, of a client that starts runs, or of a service that\n" +
			"answers calls. Files need no connection.",
		Example: "  agentd contracts asyncapi > asyncapi.yaml\n" +
			"  agentd contracts asyncapi --view service -o json contracts/book.yaml",
		Annotations: map[string]string{cli.OutputYAML: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(asyncapi.Views(), asyncapi.View(f.view)) {
				return cli.Usagef("--view %q: want agentd, client or service", f.view)
			}
			return asyncAPI(cmd.Context(), a, f, args)
		},
	}
	cmd.Flags().StringVar(&f.title, "title", "agentd", "title of the document")
	cmd.Flags().StringVar(&f.version, "doc-version", "1.0.0", "version of the document")
	cmd.Flags().StringVar(&f.view, "view", string(asyncapi.ViewAgentd), "whose operations: agentd, client or service")
	_ = cmd.RegisterFlagCompletionFunc("view", cobra.FixedCompletions([]string{"agentd", "client", "service"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func asyncAPI(ctx context.Context, a *cli.App, f asyncAPIFlags, refs []string) error {
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	d := asyncapi.Deployment{
		Title: f.title, Version: f.version, View: asyncapi.View(f.view), Subjects: setup.Subjects(cfg),
		Servers: servers(cfg.NATS.URL), Agents: cfg.Agents, Contracts: slices.Clone(cfg.Contracts),
		Partitions: cfg.NATS.Partitions,
	}
	for _, s := range setup.Plan(cfg).Services {
		d.Lanes = append(d.Lanes, asyncapi.Lane{Domain: s.Domain, Type: s.Type})
	}
	for _, ref := range refs {
		c, err := loadContract(ctx, a, ref)
		if err != nil {
			return err
		}
		same := func(other sdk.Contract) bool { return wire.SameURI(other.URI, c.URI) }
		if i := slices.IndexFunc(d.Contracts, same); i >= 0 {
			d.Contracts[i] = c // the file may have further versions
		} else {
			d.Contracts = append(d.Contracts, c)
		}
	}
	document, err := asyncapi.Document(d)
	if err != nil {
		return err
	}
	if a.Output != cli.OutputJSON {
		if document, err = toYAML(document); err != nil {
			return err
		}
	}
	return cli.WriteText(a.Out, string(bytes.TrimSpace(document))+"\n")
}

// servers are the addresses of the configuration without what gives access.
func servers(addresses config.URL) []asyncapi.Server {
	var list []asyncapi.Server
	for _, server := range address.Servers(addresses.Reveal()) {
		u, err := address.Parse(server)
		if err != nil || u.Host == "" {
			continue // connecting to it would say what is wrong
		}
		name := "nats"
		if len(list) > 0 {
			name += strconv.Itoa(len(list) + 1)
		}
		list = append(list, asyncapi.Server{Name: name, Host: u.Host, Protocol: u.Scheme})
	}
	return list
}

// toYAML keeps the order of members.
func toYAML(document json.RawMessage) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(document, &node); err != nil {
		return nil, fmt.Errorf("read document as YAML: %w", err)
	}
	plain(&node)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&node); err != nil {
		return nil, fmt.Errorf("write document as YAML: %w", err)
	}
	return b.Bytes(), nil
}

// plain drops the form that JSON has as YAML.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plain(child)
	}
}

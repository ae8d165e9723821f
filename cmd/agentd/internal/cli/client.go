package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/runner"
	"agentd/internal/setup"
	"agentd/internal/spelling"
	"agentd/internal/worker"
	"agentd/sdk/client"
)

// Source is what the command line calls itself in events.
const Source = "agentd.cli"

// WithClient calls do with a connection.
func (a *App) WithClient(ctx context.Context, do func(*Client) error) error {
	c, err := a.Client(ctx)
	if err != nil {
		return err
	}
	return c.CloseAfter(do(c))
}

// WithStore calls do with the connection and the store of runs.
func (a *App) WithStore(ctx context.Context, do func(*Client, runner.Store) error) error {
	return a.WithClient(ctx, func(c *Client) error {
		store, err := c.OpenStore(ctx)
		if err != nil {
			return err
		}
		return errors.Join(do(c, store), store.Close())
	})
}

// Patience is how long a run may be silent before the command looks for the reason.
const Patience = 2 * time.Second

// WithRegistry calls do with the connection and the registry of contracts.
func (a *App) WithRegistry(ctx context.Context, do func(*Client, broker.Registry) error) error {
	return a.WithClient(ctx, func(c *Client) error { return do(c, c.Registry()) })
}

// Speaking is the client of runs that calls itself source in events.
func (c *Client) Speaking(source string) *client.Client {
	return client.New(c, client.Options{Source: source, As: c.Who()})
}

// ContractType is the type of an agent's init events: its contract's, where the configuration knows the agent.
func (c *Client) ContractType(agent string) string {
	for _, spec := range c.Config.Agents {
		if spec.Name == agent {
			return spec.Contract.Type
		}
	}
	return agent
}

// Meant ends the message that nobody serves an agent: with the configured one that its name looks like. Others may be served too.
func (c *Client) Meant(agent string) string {
	names := setup.AgentNames(c.Config)
	if meant := spelling.Closest(agent, names); meant != "" && meant != agent {
		return fmt.Sprintf("; did you mean %q?", meant)
	}
	return ""
}

// CompleteAgents completes the names of configured agents.
func (a *App) CompleteAgents(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	cfg, err := a.Settings()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, spec := range cfg.Agents {
		names = append(names, spec.Name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// ConnectTimeout bounds a connection of a command that a person waits for.
const ConnectTimeout = 10 * time.Second

// Client is a connection for one command.
type Client struct {
	*broker.Conn
	Config *config.Config
	// CommandLine is that of the App.
	CommandLine func(args ...string) string
}

// Client connects as a client. The caller closes the connection.
func (a *App) Client(ctx context.Context) (*Client, error) {
	cfg, err := a.Settings()
	if err != nil {
		return nil, err
	}
	return a.Connect(ctx, cfg)
}

// Connect connects with settings that were read. The caller closes the connection.
func (a *App) Connect(ctx context.Context, cfg *config.Config) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, ConnectTimeout)
	defer cancel()
	return a.connect(ctx, cfg, broker.ConnectOptions{Logger: a.QuietLogger(), Waits: func(what string, _ error) {
		fmt.Fprintf(a.Err, "agentd: waiting for the %s: no server answers for it now\n", what)
	}})
}

// Await is Connect for what nobody waits for at a terminal: the server may come, or come back, at any time.
func (a *App) Await(ctx context.Context, cfg *config.Config, logger *slog.Logger) (*Client, error) {
	return a.connect(ctx, cfg, broker.ConnectOptions{Logger: logger, Wait: true})
}

// ConnectFor is Connect as somebody else, who shows the server the proof of a login in place of this program's own.
func (a *App) ConnectFor(ctx context.Context, cfg *config.Config, who, proof string) (*broker.Conn, error) {
	url, err := setup.Address(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ConnectTimeout)
	defer cancel()
	return broker.Connect(ctx, broker.ConnectOptions{
		URL: url, Login: setup.Login(cfg), Name: program + " for " + who, Who: who, Proof: proof, Subjects: setup.Subjects(cfg), Logger: a.QuietLogger(),
	})
}

func (a *App) connect(ctx context.Context, cfg *config.Config, o broker.ConnectOptions) (*Client, error) {
	url, err := setup.Address(cfg)
	if err != nil {
		return nil, err
	}
	principal, err := setup.FindPrincipal(cfg, a.As)
	if err != nil {
		return nil, err
	}
	o.Who, o.URL, o.Login, o.Name, o.Subjects = principal.Who, url, setup.Login(cfg), program, setup.Subjects(cfg)
	conn, err := broker.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Client{conn, cfg, a.CommandLine}, nil
}

// CloseAfter reports err, and what went wrong with closing.
func (c *Client) CloseAfter(err error) error { return errors.Join(err, c.Close()) }

// OpenStore opens the store of runs, which must be the one that runs are kept in.
func (c *Client) OpenStore(ctx context.Context) (worker.OpenedStore, error) {
	return c.openStore(ctx, worker.OpenStore)
}

// OpenAnyStore opens a store that runs may not be kept in.
func (c *Client) OpenAnyStore(ctx context.Context) (worker.OpenedStore, error) {
	return c.openStore(ctx, worker.OpenAnyStore)
}

func (c *Client) openStore(
	ctx context.Context, open func(context.Context, *broker.Conn, worker.StoreOptions) (worker.OpenedStore, error),
) (worker.OpenedStore, error) {
	o, err := setup.StoreOptions(c.Config)
	if err != nil {
		return worker.OpenedStore{}, err
	}
	return open(ctx, c.Conn, o)
}

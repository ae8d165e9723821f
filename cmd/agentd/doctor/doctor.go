// Package doctor is agentd doctor.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"agentd/sdk/wire"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/internal/worker"
	"agentd/sdk"
)

// Command is agentd doctor.
func Command(a *cli.App) *cobra.Command {
	var monitor string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps agentd from keeping its promises",
		Long: "doctor looks at the NATS server, its streams and consumers, the store of runs, the data folder, the models and\n" +
			"the workers, and says for each finding what to do. It changes nothing. Exit codes: 0 no errors (warnings are\n" +
			"possible), 4 errors found.",
		Example: "  agentd doctor\n  agentd doctor --monitor http://nats:8222 -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return examine(cmd.Context(), a, monitor) },
	}
	cmd.Flags().StringVar(&monitor, "monitor", "", "monitoring address of the NATS server, to see whether it syncs every write")
	return cmd
}

// examination is what doctor did and found.
type examination struct {
	Examined []string         `json:"examined"`
	Findings []broker.Finding `json:"findings"`
}

func (e *examination) examined(format string, args ...any) {
	e.Examined = append(e.Examined, fmt.Sprintf(format, args...))
}

func (e *examination) found(findings ...broker.Finding) { e.Findings = append(e.Findings, findings...) }

func examine(ctx context.Context, a *cli.App, monitor string) error {
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	e := &examination{Findings: []broker.Finding{}}
	e.models(cfg)
	e.folder(cfg)
	if err := examineServers(ctx, a, cfg, monitor, e); err != nil {
		return err
	}
	if err := a.Print(e, e.write); err != nil {
		return err
	}
	if broker.Problem(e.Findings) != nil {
		return cli.Exit(cli.ExitFindings)
	}
	return nil
}

func (e *examination) models(cfg *config.Config) {
	registry, err := setup.Models(cfg)
	if err == nil && len(cfg.Agents) > 0 {
		err = setup.CheckModels(cfg, registry)
		e.examined("models of %s", show.Count(len(cfg.Agents), "agent"))
	}
	if err == nil {
		return
	}
	// Workers may have keys that this command does not see.
	f := broker.Finding{Code: "model", Severity: broker.SeverityWarning, Message: err.Error(), Remedy: "correct models: in the configuration"}
	if problem := sdk.AsError(err); problem.Cause != nil {
		f.Message, f.Remedy = problem.Cause.Error(), problem.Message
	}
	e.found(f)
}

func (e *examination) folder(cfg *config.Config) {
	if cfg.NATS.URL != "" {
		return // nothing embedded is used
	}
	e.examined("data folder %s", cfg.Data)
	e.found(broker.CheckFolder(cfg.Data)...)
}

func examineServers(ctx context.Context, a *cli.App, cfg *config.Config, monitor string, e *examination) error {
	c, err := a.Connect(ctx, cfg)
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}):
		e.found(broker.Finding{
			Code: "server_version", Severity: broker.SeverityError, Message: sdk.AsError(err).Message, Remedy: "upgrade the NATS server",
		})
		return nil
	case err != nil:
		problem := sdk.AsError(err)
		message := problem.Message
		if problem.Cause != nil {
			message += ": " + problem.Cause.Error()
		}
		e.found(broker.Finding{
			Code: "nats_unreachable", Severity: broker.SeverityError, Message: message,
			Remedy: "start the server (agentd dev), or correct NATS_URL and NATS_CREDS",
		})
		return nil
	}
	e.examined("NATS server %s", c.ServerVersion())
	return c.CloseAfter(e.broker(ctx, c, monitor))
}

func (e *examination) broker(ctx context.Context, c *cli.Client, monitor string) error {
	if err := e.registry(ctx, c); err != nil {
		return err
	}
	p := setup.Plan(c.Config)
	if len(p.Agents) == 0 {
		p.LongestRun = time.Nanosecond // there is no deadline to compare the streams with
	}
	findings, err := c.Verify(ctx, p)
	if err != nil {
		return err
	}
	e.examined("streams, and consumers of %s and %s", show.Count(len(p.Agents), "agent"), show.Count(len(p.Services), "service"))
	e.found(findings...)
	findings, err = c.CheckSync(ctx, monitor)
	if err != nil {
		return err
	}
	e.found(findings...)
	e.store(ctx, c)
	for _, spec := range c.Config.Agents {
		e.worker(ctx, c, spec.Name)
	}
	return nil
}

// registry looks up what the agents have from there. That it does not exist is found with the other streams.
func (e *examination) registry(ctx context.Context, c *cli.Client) error {
	if len(c.Config.References) == 0 {
		return nil
	}
	e.examined("registry of contracts, for %s", show.Count(len(c.Config.References), "reference"))
	var missing config.Faults
	err := c.Permitted(ctx, func(ctx context.Context) (err error) {
		missing, err = setup.LookUp(ctx, c.Registry(), c.Config)
		return err
	})
	switch {
	case cli.NotPermitted(err):
		e.found(broker.NotPermitted("read the registry of contracts", "whether it has what agents refer to"))
		return nil
	case errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}):
		return nil
	}
	for _, f := range missing {
		e.found(broker.Finding{
			Code: "contract_missing", Severity: broker.SeverityError, Message: f.String(),
			Remedy: "start the service that publishes it, or run: agentd contracts push FILE",
		})
	}
	return err
}

// store is examined by opening and reading it.
func (e *examination) store(ctx context.Context, c *cli.Client) {
	e.examined("store of runs: %s, %s", c.Config.StoreKind(), setup.EncryptionText(c.Config.Encryption))
	o, err := setup.StoreOptions(c.Config)
	if err != nil {
		e.found(broker.Finding{
			Code: "encryption_keys", Severity: broker.SeverityError, Message: "the store cannot be opened without its keys: " + err.Error(),
			Remedy: "put the keys where encryption.keys says",
		})
		return
	}
	if c.Config.Encryption.AllowPlaintext {
		e.found(broker.Finding{
			Code: "plaintext_allowed", Severity: broker.SeverityWarning,
			Message: "encryption.allow_plaintext is on: who can write to the store can begin runs in plaintext",
			Remedy:  "remove it when the runs that began before encryption are no longer needed",
		})
	}
	var findings []broker.Finding
	err = c.Permitted(ctx, func(ctx context.Context) error {
		findings = worker.CheckStore(ctx, c.Conn, o)
		return context.Cause(ctx)
	})
	if cli.NotPermitted(err) {
		findings = []broker.Finding{broker.NotPermitted("read the store of runs", "whether they can be opened")}
	}
	e.found(findings...)
}

func (e *examination) worker(ctx context.Context, c *cli.Client, agent string) {
	e.examined("workers of %s", agent)
	ctx, cancel := context.WithTimeout(ctx, cli.Patience)
	defer cancel()
	var status wire.RunStatus
	// No run has this name: a worker says so.
	err := c.Ask(ctx, c.Subjects().Get(agent), wire.Query{Run: "agentd doctor"}, &status)
	if cli.NotPermitted(err) {
		e.pulled(ctx, c, agent)
		return
	}
	if err == nil || errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		return
	}
	message := "no worker answers for agent " + agent
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		message += ": " + err.Error()
	}
	e.found(noWorker(message))
}

func noWorker(message string) broker.Finding {
	return broker.Finding{Code: "no_worker", Severity: broker.SeverityWarning, Message: message, Remedy: "start one: agentd serve"}
}

// pulled looks whether somebody takes an agent's messages. Workers themselves may not ask other workers, but may see that.
func (e *examination) pulled(ctx context.Context, c *cli.Client, agent string) {
	// A worker that renews its requests has none for a moment.
	const looks, every = 5, 100 * time.Millisecond
	var pulls int64
	err := c.Permitted(ctx, func(ctx context.Context) (err error) {
		for look := 0; look < looks && pulls == 0 && err == nil; look++ {
			pulls, err = pullsOf(ctx, c, agent)
			if pulls == 0 && err == nil {
				<-time.After(every)
			}
		}
		return err
	})
	switch {
	case cli.NotPermitted(err):
		e.found(broker.NotPermitted("ask workers of "+agent, "whether there are any"))
	case err != nil:
		e.found(noWorker("no worker can be seen for agent " + agent + ": " + err.Error()))
	case pulls == 0:
		e.found(noWorker("no worker takes messages for agent " + agent + ", or all are busy"))
	}
}

// pullsOf are the requests that wait for an agent's messages.
func pullsOf(ctx context.Context, c *cli.Client, agent string) (pulls int64, err error) {
	for _, ref := range broker.AgentConsumers(agent) {
		b, err := c.Backlog(ctx, ref)
		if err != nil {
			return 0, err
		}
		pulls += b.Pulls
	}
	return pulls, nil
}

func (e *examination) write(w io.Writer) error {
	for _, text := range e.Examined {
		fmt.Fprintln(w, "examined ", text)
	}
	for i, f := range e.Findings {
		fmt.Fprintf(w, "%-9s  %s\n", f.Severity, f.Message)
		if last := i == len(e.Findings)-1; last || e.Findings[i+1].Remedy != f.Remedy {
			fmt.Fprintf(w, "           → %s\n", f.Remedy)
		}
	}
	if len(e.Findings) == 0 {
		fmt.Fprintln(w, "nothing found")
	}
	return nil
}

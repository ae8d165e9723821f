// Package conformance is agentd conformance.
package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/conformance"
	"agentd/internal/contracts"
	"agentd/internal/show"
	"agentd/sdk"
)

type flags struct {
	service, data, fail, slow, unsendable string
	client                                bool
	cases                                 []string
	partitions                            int
	patience                              time.Duration
}

// Command is agentd conformance.
func Command(a *cli.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "conformance {--service TYPE | --client} -- PROGRAM [ARGUMENT...]",
		Short: "Drive a service or a client through the cases of the wire, and say which it keeps to",
		Long: "conformance starts a NATS server of its own and PROGRAM, which is to connect to NATS_URL, and tries what the wire asks of it.\n" +
			"With --service, PROGRAM serves a contract: answers, errors, duplicates, voids, kill -9, SIGTERM. TYPE is a contract of the\n" +
			"configuration, or a contract file. With --client, PROGRAM starts and follows runs, as lines of its input say: identities,\n" +
			"ends, live events that are lost and doubled, answers, delays, kill -9. Exit codes: 0 no case failed, 4 cases failed.",
		Example: "  agentd conformance --service weather.forecast --data '{\"city\":\"Bern\"}' -- python3 service.py\n" +
			"  agentd conformance --client -- python3 client.py",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.patience <= 0 { // it would be the default
				return cli.Usagef("--patience %s: want a duration above 0", f.patience)
			}
			return run(cmd.Context(), a, f, args)
		},
	}
	cmd.Flags().StringVar(&f.service, "service", "", "type of a contract in the configuration, or a contract file")
	cmd.Flags().BoolVar(&f.client, "client", false, "PROGRAM is a client, which reads requests from its input and prints answers")
	cmd.Flags().StringVar(&f.data, "data", "{}", "data of a call that is answered, with the same each time")
	cmd.Flags().StringVar(&f.fail, "fail", "", "data of a call whose handler reports an error")
	cmd.Flags().StringVar(&f.slow, "slow", "", "data of a call whose handler takes at least 20 s unless it is told to stop")
	cmd.Flags().StringVar(&f.unsendable, "unsendable", "", "data of a call whose handler returns what cannot be sent, such as a text of 2 MiB")
	cmd.Flags().StringSliceVar(&f.cases, "case", nil, "only these cases; of services: "+strings.Join(conformance.Names(), ", ")+
		"; of clients: "+strings.Join(conformance.ClientNames(), ", "))
	cmd.Flags().IntVar(&f.partitions, "partitions", 1, "into how many streams the calls of the service are divided")
	cli.DurationVar(cmd.Flags(), &f.patience, "patience", conformance.DefaultPatience, "how long PROGRAM may take for anything")
	cmd.MarkFlagsOneRequired("service", "client")
	for _, ofServices := range []string{"service", "data", "fail", "slow", "unsendable", "partitions"} {
		cmd.MarkFlagsMutuallyExclusive(ofServices, "client")
	}
	return cmd
}

func run(ctx context.Context, a *cli.App, f flags, command []string) error {
	report, err := try(ctx, a, f, command)
	if err != nil {
		return err
	}
	if err := a.Print(report, func(w io.Writer) error { return write(w, report) }); err != nil {
		return err
	}
	if report.Count(conformance.Failed) > 0 {
		return cli.Exit(cli.ExitFindings)
	}
	return nil
}

func try(ctx context.Context, a *cli.App, f flags, command []string) (conformance.Report, error) {
	if f.client {
		return conformance.RunClient(ctx, conformance.ClientOptions{Command: command, Output: a.Err, Only: f.cases, Patience: f.patience})
	}
	contract, err := find(a, f.service)
	if err != nil {
		return conformance.Report{}, err
	}
	return conformance.Run(ctx, conformance.Options{
		Contract: contract, Command: command, Output: a.Err, Only: f.cases, Patience: f.patience,
		Partitions: f.partitions, Data: json.RawMessage(f.data), Fail: json.RawMessage(f.fail), Slow: json.RawMessage(f.slow),
		Unsendable: json.RawMessage(f.unsendable),
	})
}

// find is the contract of a file, or of the configuration.
func find(a *cli.App, service string) (sdk.Contract, error) {
	for _, ending := range []string{".json", ".yaml", ".yml"} {
		if strings.HasSuffix(service, ending) {
			return contracts.Load(service)
		}
	}
	cfg, err := a.Settings()
	if err != nil {
		return sdk.Contract{}, err
	}
	var known []string
	for _, c := range cfg.Contracts {
		if c.Type == service {
			return c, nil
		}
		known = append(known, c.Type)
	}
	return sdk.Contract{}, cli.Usagef("--service %s: want a contract file, or one of %s", service, strings.Join(known, ", "))
}

func write(w io.Writer, r conformance.Report) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Results {
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.Outcome, c.Case, show.Visible(cmp.Or(c.Why, c.Rule)))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	tried := r.Client
	if tried == "" {
		tried = r.Service + " " + r.Version
	}
	_, err := fmt.Fprintf(w, "%s: %d passed, %d with advice, %d failed, %d skipped\n", tried,
		r.Count(conformance.Passed), r.Count(conformance.Advised), r.Count(conformance.Failed), r.Count(conformance.Skipped))
	return err
}

// Package doctor is agentd doctor.
package doctor

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/doctor"
	"agentd/internal/finding"
	"agentd/internal/show"
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
	cmd.Flags().StringVar(&monitor, "monitor", "", "monitoring addresses of the NATS servers, with commas between them, to see whether they sync every write")
	return cmd
}

func examine(ctx context.Context, a *cli.App, monitor string) error {
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	e, err := doctor.Examine(ctx, cfg, monitor, func(ctx context.Context) (*broker.Conn, error) {
		c, err := a.Connect(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return c.Conn, nil
	})
	if ctx.Err() != nil {
		return ctx.Err() // what it says then is of the interruption
	}
	if err != nil {
		return err
	}
	if err := a.Print(e, func(w io.Writer) error { return write(w, a, e) }); err != nil {
		return err
	}
	if finding.Serious(e.Findings) {
		return cli.Exit(cli.ExitFindings)
	}
	return nil
}

func write(w io.Writer, a *cli.App, e *doctor.Examination) error {
	for _, text := range e.Examined {
		fmt.Fprintln(w, "examined ", text)
	}
	for i, f := range e.Findings {
		fmt.Fprintf(w, "%-9s  %s\n", f.Severity, show.VisibleLines(f.Text()))
		if last := i == len(e.Findings)-1; last || e.Findings[i+1].Remedy != f.Remedy {
			fmt.Fprintf(w, "           → %s\n", show.VisibleLines(a.Reaching(f.Remedy)))
		}
	}
	if len(e.Findings) == 0 {
		fmt.Fprintln(w, "nothing found")
	}
	return nil
}

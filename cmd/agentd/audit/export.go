package audit

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/audit"
	"agentd/internal/audit/live"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/show"
)

func exportCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "export RUN",
		Short: "Write who asked, decided and did what in a run, as JSON Lines that an outsider can verify",
		Long: "export writes the trail of one run: every call that the model asked for, every permission request, view, decision,\n" +
			"refusal and execution, with time, principal, exact arguments, digest of the policy and version of the contract, in\n" +
			"the order of the journal. Each line has the SHA-256 of the line before, and each record that of its journal entry.\n" +
			"The digest of the last line goes to the standard error: keep it apart from the trail, as proof that this is what\n" +
			"was exported. Verify a trail with: agentd audit verify --file",
		Example: "  agentd audit export trip-7 > trip-7.jsonl",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithRun(cmd.Context(), args[0], func(c *cli.Client, store runner.Store, last core.Entry) error {
				return exportTrail(cmd.Context(), a, c, store, last.Head)
			})
		},
	}
}

func exportTrail(ctx context.Context, a *cli.App, c *cli.Client, store runner.Store, head core.Head) error {
	stored, err := store.Entries(ctx, head.Key(), runner.Version{})
	if err != nil {
		return fmt.Errorf("read the journal of run %s: %w", head.Run, err)
	}
	entries, err := runner.New(runner.Options{Store: store}).Journal(ctx, head.Key())
	if err != nil {
		return err
	}
	trail, err := audit.NewTrail(a.Out, head.Run)
	if err != nil {
		return err
	}
	l := audit.NewLog()
	l.Tools = map[string]string{}
	var refused live.Refusals
	lastDigest := ""
	// The run may go on meanwhile: both have at least the entries that were there before.
	for i := range min(len(stored), len(entries)) {
		e, digest := &entries[i], core.Digest(stored[i].Data)
		if err := trail.Entry(e, digest); err != nil {
			return err
		}
		written := len(l.Records)
		err := l.Entry(audit.LogRecord{At: e.At, Run: e.Head.Run, Agent: e.Head.Agent, Revision: e.Rev, Entry: digest}, e)
		if err != nil {
			return err
		}
		for _, r := range l.Records[written:] {
			if err := trail.Record(r); err != nil {
				return err
			}
		}
		refused.Of(entries[:i+1])
		lastDigest = digest
	}
	err = refused.Read(ctx, c.Conn, func(r audit.LogRecord) error {
		r = r.Of(l.Records)
		r.Entry = lastDigest
		return trail.Record(r)
	})
	if err != nil {
		return err
	}
	digest, err := trail.End()
	if err == nil {
		fmt.Fprintf(a.Err, "sha256 of the last line: %s\n", digest)
	}
	return err
}

func openTrail(ctx context.Context, a *cli.App, path string) (io.ReadCloser, error) {
	if path == "-" {
		return a.Input(ctx), nil
	}
	return os.Open(path)
}

// verifyTrail checks an exported trail; "-" is the standard input.
func verifyTrail(ctx context.Context, a *cli.App, path string) error {
	in, err := openTrail(ctx, a, path)
	if err != nil {
		return fmt.Errorf("read trail: %w", err)
	}
	defer func() { _ = in.Close() }() // nothing was written to it
	summary, err := audit.VerifyTrail(in)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s is not what was exported: %w", path, err)
	}
	return a.Print(summary, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "run       %s\nchecked   %s, %s\nsha256    %s\nresult    nothing was changed\n", show.Line(summary.Run, show.LineMax),
			show.Count(summary.Entries, "entry"), show.Count(summary.Records, "record"), summary.SHA256)
		return err
	})
}

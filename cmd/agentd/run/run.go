// Package run is agentd run.
package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/internal/retry"
	"agentd/internal/show"
	"agentd/internal/telemetry"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

type runFlags struct {
	follow.Options
	input, message, subject string
	tags                    []string
	constraints             string
	detach                  bool
}

// Command is agentd run.
func Command(a *cli.App) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run AGENT (--message TEXT | --input JSON|@FILE|-)",
		Short: "Start a run and follow it to its result",
		Long: "run publishes an init event for an agent, shows on stderr what happens, and prints the result on stdout.\n\n" +
			"What the agent asks is answered with the --answer texts in order, and after those on the terminal. Without a\n" +
			"terminal the run waits until somebody else answers. A conversation is ended with the answer " + follow.EndWord + ".\n\n" +
			"Ctrl-C and --timeout end the following, never the run. Exit codes: 0 result, 1 it could not be started or\n" +
			"followed, 2 wrong usage, 3 the run ended with an error, 130 Ctrl-C.",
		Example: "  agentd run travel.desk --message 'Two nights in Lisbon, please'\n" +
			"  agentd run travel.desk --message 'Two nights in Lisbon' --answer 'Yes, book both' -o json\n" +
			"  agentd run invoice.check --input @invoice.json --subject invoice-4711 --detach\n" +
			"  jq -n '{message: \"hello\"}' | agentd run travel.desk --input -",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), a, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.input, "input", "", "data of the init event: JSON, @FILE, or - for stdin")
	flags.StringVarP(&f.message, "message", "m", "", `short for --input '{"message": TEXT}'`)
	flags.StringVar(&f.subject, "subject", "", "name of the run (default: one that is unique)")
	flags.StringArrayVar(&f.tags, "tag", nil, "a tag to find the run by, KEY=VALUE; may be repeated")
	flags.StringVar(&f.constraints, "constraints", "", `bound the run's calls beside its agent's constraints: JSON, such as '{"read_only":true}'`)
	flags.BoolVarP(&f.detach, "detach", "d", false, "do not follow; print the run's name")
	follow.AddFlags(cmd, &f.Options)
	cli.Narrow(flags, "constraints")
	cmd.MarkFlagsMutuallyExclusive("input", "message")
	cmd.MarkFlagsOneRequired("input", "message")
	return cmd
}

func run(ctx context.Context, a *cli.App, agent string, f runFlags) error {
	if err := wire.CheckName(agent); err != nil {
		return cli.Usagef("agent %q: want letters, digits, \"_\", \"-\" and single dots", agent)
	}
	data, err := readInput(ctx, a, f)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return cli.Usage(err)
	}
	tags, err := wire.ParseTags(strings.Join(f.tags, ","))
	if err != nil {
		return cli.Usage(err)
	}
	constraints, err := readConstraints(f.constraints)
	if err != nil {
		return cli.Usagef("--constraints: %w", err)
	}
	return a.WithClient(ctx, func(c *cli.Client) error {
		request := client.Request{
			Agent: agent, Input: data, Key: client.NewKey(), Name: f.subject, Type: c.ContractType(agent), Tags: tags, Constraints: constraints,
		}
		return startTraced(ctx, a, c, request, f)
	})
}

// readConstraints are the bounds that a text gives the run; nil is that none was given. What bounds nothing was meant to, and is refused: a list
// may be empty by mistake.
func readConstraints(text string) (*sdk.Constraints, error) {
	if text == "" {
		return nil, nil
	}
	var c sdk.Constraints
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&c)
	if err == nil && d.More() {
		err = errors.New("something follows the JSON")
	}
	if err != nil {
		return nil, fmt.Errorf("want JSON with allow, deny, read_only or files: %w", err)
	}
	var given struct {
		Allow json.RawMessage            `json:"allow"`
		Files map[string]json.RawMessage `json:"files"`
	}
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return nil, err
	}
	switch _, paths := given.Files["allow"]; {
	case given.Allow != nil && len(c.Allow) == 0:
		return nil, errors.New("allow is empty, and would allow every tool")
	case paths && len(c.Files.Allow) == 0:
		return nil, errors.New("files.allow is empty, and would allow every path")
	case len(c.Allow) == 0 && len(c.Deny) == 0 && !c.ReadOnly && c.Files == nil:
		return nil, fmt.Errorf("%s bounds nothing, and would allow everything", text)
	}
	return &c, nil
}

// startTraced is start with a span of its own, where the environment asks for traces.
func startTraced(ctx context.Context, a *cli.App, c *cli.Client, r client.Request, f runFlags) error {
	shown, err := telemetry.Start(ctx, telemetry.Options{Logger: a.QuietLogger()})
	if err != nil {
		return cli.Usage(err)
	}
	trace := wire.Event{ID: r.Key, Subject: r.Name}
	ctx, end := shown.Client(ctx, r.Agent, &trace)
	r.TraceParent, r.TraceState = trace.TraceParent, trace.TraceState
	err = start(ctx, a, c, r, f)
	end(err)
	return errors.Join(err, shown.Close())
}

// start starts a run and follows it.
func start(ctx context.Context, a *cli.App, c *cli.Client, request client.Request, f runFlags) error {
	starter := c.Speaking(cli.Source)
	named := starter.Identify(request)
	r := follow.Run{Subject: named.Name, Agent: named.Agent, Key: wire.NewRunKey(named.Name), Init: named.Init}
	if request.Name != "" {
		if err := checkNew(ctx, a, starter, named); err != nil {
			return err
		}
	}
	publish := func(ctx context.Context) error {
		_, err := starter.Start(ctx, request)
		if errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) || errors.Is(err, &sdk.Error{Code: sdk.CodeContractViolation}) {
			return cli.Usage(err)
		}
		return err
	}
	if f.detach {
		err := publish(ctx)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%w; if it was started all the same: %s", err, a.CommandLine("runs", "follow", r.Subject, "--agent", r.Agent))
		}
		if err != nil {
			return err
		}
		err = a.Print(started{r.Subject, r.Agent}, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, r.Subject)
			return err
		})
		if err != nil {
			return err
		}
		return awaitBegin(ctx, a, c, named)
	}
	follower := follow.New(a, c, r, f.Options)
	return follower.Follow(ctx, func(ctx context.Context) error {
		err := publish(ctx)
		if err == nil {
			follower.Progress.Note("run", r.Subject)
		}
		return err
	})
}

// begins is how soon it is asked again whether a run has begun.
var begins = retry.Pauses{First: 10 * time.Millisecond, Longest: 250 * time.Millisecond}

// awaitBegin waits until workers know a run that was started, so that the next command finds it, and says what keeps it from beginning: its
// event is stored. It fails when the event was refused.
func awaitBegin(ctx context.Context, a *cli.App, c *cli.Client, run client.Run) error {
	awaiting, stop := context.WithTimeout(ctx, cli.Patience)
	defer stop()
	var end wire.Event
	var listening sync.WaitGroup
	listening.Go(func() {
		if event, err := c.WaitDone(awaiting, run.Agent, wire.NewRunKey(run.Name), run.Init); err == nil {
			end = event
			stop()
		}
	})
	asking := c.Speaking(cli.Source)
	var asked error // what the last answer was that came
	err := begins.Do(awaiting, retry.Sleep, func() error {
		_, err := asking.Status(awaiting, run)
		if awaiting.Err() == nil {
			asked = err
		}
		if cli.NotBegun(err) {
			return err // there may be no such agent: workers of others refuse its event then
		}
		return retry.Final(err)
	})
	stop()
	listening.Wait()
	if refused := cli.Refused(run.Agent, end); refused != nil {
		if refused.Code == sdk.CodeUnknownAgent {
			refused.Message += c.Meant(run.Agent)
		}
		return cli.RunFailed(refused)
	}
	if err == nil || end.ID != "" || cli.NotPermitted(err) { // it began, or this user may not look
		return nil
	}
	a.Progress(a.Err).Note(show.LabelWaits, c.Unbegun(ctx, run.Agent, asked))
	return nil
}

// started is a run that is not followed.
type started struct {
	Run   string `json:"run"`
	Agent string `json:"agent"`
}

// readInput is the data of the init event.
func readInput(ctx context.Context, a *cli.App, f runFlags) (json.RawMessage, error) {
	if f.input == "" { // the message was given
		data, err := json.Marshal(map[string]string{"message": f.message})
		return data, err
	}
	data, from := []byte(f.input), "--input"
	var err error
	if f.input == "-" {
		from = "stdin"
		data, err = io.ReadAll(a.Input(ctx))
	} else if path, ok := strings.CutPrefix(f.input, "@"); ok {
		from = path
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read input: %w", err)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil || object == nil {
		return nil, fmt.Errorf("%s: want a JSON object, %s", from, cause(err))
	}
	return data, nil
}

func cause(err error) string {
	if err == nil {
		return "got null"
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "got " + e.Value
	}
	return err.Error()
}

// checkNew refuses a run that is there already, before anything of it could be mistaken for the new one. What no worker
// can tell is decided when the event is handled.
func checkNew(ctx context.Context, a *cli.App, asking *client.Client, r client.Run) error {
	ctx, cancel := context.WithTimeout(ctx, cli.Patience)
	defer cancel()
	status, err := asking.Status(ctx, r)
	if err != nil {
		return nil // nobody knows such a run
	}
	return sdk.Errorf(sdk.CodeRunExists, "run %q exists and is %s, so nothing was started; to follow it: %s",
		r.Name, status.Status, a.CommandLine("runs", "follow", r.Name))
}

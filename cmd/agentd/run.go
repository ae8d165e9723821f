package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"agentd/sdk/wire"

	"github.com/spf13/cobra"

	"agentd/internal/telemetry"
	"agentd/internal/worker"
	"agentd/sdk"
)

type runFlags struct {
	followOptions
	input, message, subject string
	detach                  bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run AGENT (--message TEXT | --input JSON|@FILE|-)",
		Short: "Start a run and follow it to its result",
		Long: "run publishes an init event for an agent, shows on stderr what happens, and prints the result on stdout.\n\n" +
			"What the agent asks is answered with the --answer texts in order, and after those on the terminal. Without a\n" +
			"terminal the run waits until somebody else answers. A conversation is ended with the answer " + endWord + ".\n\n" +
			"Ctrl-C and --timeout end the following, never the run. Exit codes: 0 result, 1 it could not be started or\n" +
			"followed, 2 wrong usage, 3 the run ended with an error, 130 Ctrl-C.",
		Example: "  agentd run travel.desk --message 'Two nights in Lisbon, please'\n" +
			"  agentd run travel.desk --message 'Two nights in Lisbon' --answer 'Yes, book both' -o json\n" +
			"  agentd run invoice.check --input @invoice.json --subject invoice-4711 --detach\n" +
			"  jq -n '{message: \"hello\"}' | agentd run travel.desk --input -",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.input, "input", "", "data of the init event: JSON, @FILE, or - for stdin")
	flags.StringVarP(&f.message, "message", "m", "", `short for --input '{"message": TEXT}'`)
	flags.StringVar(&f.subject, "subject", "", "name of the run (default: one that is unique)")
	flags.BoolVarP(&f.detach, "detach", "d", false, "do not follow; print the run's name")
	addFollowFlags(cmd, &f.followOptions)
	cmd.MarkFlagsMutuallyExclusive("input", "message")
	cmd.MarkFlagsOneRequired("input", "message")
	return cmd
}

func addFollowFlags(cmd *cobra.Command, o *followOptions) {
	flags := cmd.Flags()
	flags.StringArrayVar(&o.answers, "answer", nil, "answer to the next question of the run (repeatable)")
	flags.DurationVar(&o.timeout, "timeout", 0, "stop following after this long, such as 30s (0: never)")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
}

func (a *app) run(ctx context.Context, agent string, f runFlags) error {
	if err := wire.CheckName(agent); err != nil {
		return &exitError{exitUsage, fmt.Errorf("agent %q: want letters, digits, \"_\", \"-\" and single dots", agent)}
	}
	data, err := a.readInput(f)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	event := wire.Event{
		ID: newID("run"), Source: source, Type: c.contractType(agent), Subject: f.subject,
		Time: time.Now(), Data: data,
	}
	return c.close(a.startTraced(ctx, c, agent, event, f))
}

// startTraced is start with a span of its own, where the environment asks for traces.
func (a *app) startTraced(ctx context.Context, c *client, agent string, event wire.Event, f runFlags) error {
	shown, err := telemetry.Start(ctx, telemetry.Options{Logger: a.quietLogger()})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	ctx, end := shown.Client(ctx, agent, &event)
	err = a.start(ctx, c, agent, event, f)
	end(err)
	return also(err, shown.Close())
}

// newID is an event id that nobody else has.
func newID(kind string) string { return kind + "-" + strings.ToLower(rand.Text()) }

// start publishes the init event and follows its run.
func (a *app) start(ctx context.Context, c *client, agent string, event wire.Event, f runFlags) error {
	if err := checkEvent(event); err != nil {
		return err
	}
	r := followed{subject: event.Subject, agent: agent, init: wire.InitToken(event.Source, event.ID)}
	if r.subject == "" {
		r.subject = wire.DefaultSubject(r.init)
	} else if err := a.checkNew(ctx, c, r); err != nil {
		return err
	}
	r.key = wire.NewRunKey(r.subject)
	if f.detach {
		if err := c.Start(ctx, agent, event); err != nil {
			return err
		}
		return a.print(map[string]string{runField: r.subject, "agent": agent}, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, r.subject)
			return err
		})
	}
	follower := a.follower(c, r, f.followOptions)
	return follower.follow(ctx, func(ctx context.Context) error {
		follower.progress.note("run", r.subject)
		return c.Start(ctx, agent, event)
	})
}

// readInput is the data of the init event.
func (a *app) readInput(f runFlags) (json.RawMessage, error) {
	if f.input == "" {
		data, err := json.Marshal(map[string]string{messageField: f.message})
		return data, err
	}
	data, from := []byte(f.input), "--input"
	var err error
	if f.input == "-" {
		from = "stdin"
		data, err = io.ReadAll(a.in)
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

// checkEvent finds here what a worker would refuse without being able to tell whom.
func checkEvent(event wire.Event) error {
	data, err := event.Encode()
	if err == nil {
		_, err = wire.DecodeEvent(nil, data)
	}
	if err == nil {
		return nil
	}
	e := *sdk.AsError(err)
	e.Message = "the run cannot be started with this subject and input"
	return &exitError{exitUsage, &e}
}

// checkNew refuses a run that is there already, before anything of it could be mistaken for the new one. What no worker
// can tell is decided when the event is handled.
func (a *app) checkNew(ctx context.Context, c *client, r followed) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var status worker.RunStatus
	if err := c.Ask(ctx, c.Subjects().Get(r.agent), worker.Query{Run: r.subject}, &status); err != nil {
		return nil
	}
	return sdk.Errorf(sdk.CodeRunExists, "run %q exists and is %s, so nothing was started; to follow it: %s",
		r.subject, status.Status, a.command("runs", "follow", r.subject))
}

// contractType is the type of an agent's init events: its contract's, where the configuration knows the agent.
func (c *client) contractType(agent string) string {
	for _, spec := range c.cfg.Agents {
		if spec.Name == agent {
			return spec.Contract.Type
		}
	}
	return agent
}

// completeAgents completes the names of configured agents.
func (a *app) completeAgents(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	cfg, err := a.settings()
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

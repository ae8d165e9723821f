// Package events is agentd events.
package events

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/show"
	"agentd/sdk/wire"
)

// Command is agentd events.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Watch what travels over the broker",
	}
	cmd.AddCommand(tailCommand(a))
	return cmd
}

type tailFlags struct {
	run, agent string
	all        bool
}

func tailCommand(a *cli.App) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print events as they are published, one line each",
		Long: "tail prints every event from now on until Ctrl-C: init events, calls, answers, terminal events, dead letters, and\n" +
			"the live events of runs. With -o json each line is an object with subject, headers and the message itself.",
		Example: "  agentd events tail\n  agentd events tail --run trip-7 --all\n  agentd events tail -o json | jq .subject",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), func(c *cli.Client) error {
				if err := c.CheckProvisioned(cmd.Context()); err != nil {
					return err
				}
				t := tail{a: a, subjects: c.Subjects(), flags: f}
				stop, err := c.Tail(c.Subjects().Root()+".>", t.print)
				if err != nil {
					return err
				}
				// Live events are told to who announces that they read them; print leaves out those of other runs.
				stopAnnouncing, err := c.AnnounceWatch(f.agent, wire.RunKey{}, func() {})
				if err != nil {
					return errors.Join(err, stop())
				}
				<-cmd.Context().Done()
				return errors.Join(stopAnnouncing(), stop())
			})
		},
	}
	cmd.Flags().StringVar(&f.run, "run", "", "only events of this run")
	cmd.Flags().StringVar(&f.agent, "agent", "", "only events of this agent")
	cli.Narrow(cmd.Flags(), "run", "agent")
	cmd.Flags().BoolVar(&f.all, "all", false, "also the journal, the index of runs, timers, queries and fragments of replies")
	return cmd
}

// tail prints messages.
type tail struct {
	a        *cli.App
	subjects wire.Subjects
	flags    tailFlags
}

// tailed is a message in JSON. Body holds what is not JSON as a text.
type tailed struct {
	Time    int64               `json:"time"`
	Subject string              `json:"subject"`
	Headers map[string][]string `json:"headers,omitempty"`
	Body    json.RawMessage     `json:"body"`
}

// hidden are the kinds that tail shows only when asked to.
var hidden = []wire.Kind{
	wire.KindRun, wire.KindBlob, wire.KindSpec, wire.KindCold, wire.KindTimer, wire.KindFire, wire.KindGet, wire.KindWatch, wire.KindWake,
	wire.KindRead, wire.KindIndex, wire.KindContract,
}

func (t tail) print(subject string, headers map[string][]string, data []byte) {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 2 {
		return
	}
	kind := wire.Kind(tokens[1])
	var live wire.Live
	var event wire.Event
	isEvent := false
	if kind == wire.KindStream {
		_ = json.Unmarshal(data, &live) // what cannot be read is shown as it is
	} else {
		decoded, err := wire.DecodeEvent(headers, data)
		event, isEvent = decoded, err == nil
	}
	if !t.wanted(kind, tokens, live, event) {
		return
	}
	if t.a.Output == cli.OutputJSON {
		if !json.Valid(data) {
			data, _ = json.Marshal(string(data)) // a text always encodes
		}
		// Nowhere else to report to.
		_ = cli.WriteJSON(t.a.Out, tailed{time.Now().UnixMilli(), subject, headers, data}, "")
		return
	}
	who, what := "", string(data)
	switch {
	case live.Type != "":
		who, what = live.Run, live.Type+" "+string(live.Data)
	case isEvent:
		who, what = event.Subject, event.Type+" "+string(event.Data)
	}
	if kind == wire.KindDLQ {
		what = letter(headers) + " " + what
	}
	if what = show.Visible(what); !t.a.Verbose {
		what = show.Line(what, show.LineMax)
	}
	fmt.Fprintf(t.a.Out, "%s  %-6s %s %s\n", time.Now().Format("15:04:05.000"), show.Name(string(kind)), show.NameColumn(cmp.Or(who, "-"), 24, cli.Columns(t.a.Out)), what)
}

// letter is what the headers say of a dead letter, or of the mark that is left of one that somebody dealt with.
func letter(headers map[string][]string) string {
	if how := strings.Join(headers["agentd-settled"], " "); how != "" {
		return strings.Join(headers["agentd-reason"], " ") + ": the dead letter was " + how
	}
	return strings.Join(headers["agentd-detail"], " ")
}

func (t tail) wanted(kind wire.Kind, tokens []string, live wire.Live, event wire.Event) bool {
	if !t.flags.all && (live.Ephemeral || slices.Contains(hidden, kind)) {
		return false
	}
	if agent := t.flags.agent; agent != "" && !slices.Contains(tokens[2:], wire.NameToken(agent)) {
		return false
	}
	run := t.flags.run
	return run == "" || event.Subject == run || live.Run == run || slices.Contains(tokens, wire.NewRunKey(run).Token)
}

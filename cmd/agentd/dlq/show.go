package dlq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/sdk"
)

// advice says for each reason what happened and what an operator can do (docs/dead_letters.md says more).
var advice = map[sdk.Code]string{
	sdk.CodeInvalidEvent: "It is no event, or not on a subject of this wire. Who published it must send it anew, in the form of\n" +
		"docs/wire.md. Then drop this one.",
	sdk.CodeUnknownRun: "Nothing waits for it: it names a run or a call that does not exist, came on another subject than its\n" +
		"call's, or claims to answer something else. Mend the service. If the run was lost with its store, restore\n" +
		"the store and redrive; else drop it.",
	sdk.CodeContractViolation: "A person's answer does not fit its contract. The run still waits, and they can answer again. Drop it.",
	sdk.CodeDecisionRefused: "A decision that does not count: too late, by somebody who may not decide, or about other arguments. If\n" +
		"the request is still open, somebody who may decide can do so. Drop it.",
	sdk.CodeConflict: "Two histories claim one event, as after a store was rolled back. The event that is there stands, this one\n" +
		"was never published. Compare them, find out what the store lost (agentd audit verify), then drop it.",
	sdk.CodePoison: "Workers died over this message again and again, so its run has ended with an error. Look into their logs,\n" +
		"mend the cause, and start the run again under another name. Then drop it.",
	sdk.CodeCorrupt: "The run's journal cannot be read; the run was left as it is, and all others go on. Find out what is wrong\n" +
		"(agentd audit verify RUN) and restore it, then redrive; or end the run: agentd runs cancel RUN",
	sdk.CodeUnknownAgent: "No worker that reads this stream serves what is called. Serve it; whoever called is told when the call\n" +
		"times out. Drop it.",
	sdk.CodeContractMissing: "The contract, or its version, is not known to who was asked. Deploy it. Then drop this one.",
	sdk.CodeTooLarge:        "It is larger than a limit. Who published it must send less. Drop it.",
	sdk.CodeInternal:        "A worker could not handle it, and its log says why. Mend the cause and redrive.",
}

// defaultAdvice is for reasons of other versions.
const defaultAdvice = "The detail says what is wrong. Mend the cause and redrive, or drop it."

func showCommand(a *cli.App) *cobra.Command {
	var secrets bool
	cmd := &cobra.Command{
		Use:   "show SEQUENCE",
		Short: "Show a dead letter: why, the message as it was, and what to do about it",
		Long: "show changes nothing. What looks like a secret, by its name or form, is left out, unless --secrets is given.\n" +
			"--verbose shows the body in full. Sequences are those of: agentd dlq list",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sequence, err := sequences(args)
			if err != nil {
				return err
			}
			return a.WithStore(cmd.Context(), func(c *cli.Client, store runner.Store) error {
				l, err := letter(cmd.Context(), c, sequence[0])
				if err != nil {
					return err
				}
				return showLetter(cmd.Context(), a, store, l, secrets)
			})
		},
	}
	cmd.Flags().BoolVar(&secrets, "secrets", false, "show the message as it is, with its secrets")
	return cmd
}

// sequences reads the sequences of dead letters.
func sequences(args []string) ([]uint64, error) {
	list := make([]uint64, len(args))
	for i, arg := range args {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n == 0 {
			return nil, cli.Usagef("%q is no sequence of a dead letter; see: agentd dlq list", arg)
		}
		list[i] = n
	}
	return list, nil
}

// letter reads one dead letter.
func letter(ctx context.Context, c *cli.Client, sequence uint64) (*Letter, error) {
	b, err := c.Letter(ctx, sequence)
	if errors.Is(err, broker.ErrNotStored) {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "there is no dead letter %d; see: agentd dlq list", sequence)
	}
	if err != nil {
		return nil, cli.ExplainDLQ(err)
	}
	return letterOf(c.Subjects(), b), nil
}

// shownLetter is a dead letter in full.
type shownLetter struct {
	*Letter
	Who     string              `json:"who,omitempty"`
	Status  string              `json:"run_status,omitempty"`
	Headers map[string][]string `json:"headers"`
	// Body is the body: JSON as it is, else text, else Binary.
	Body   json.RawMessage `json:"body,omitempty"`
	Binary []byte          `json:"body_base64,omitempty"`
	// Omitted says that the body was too large to be kept.
	Omitted bool `json:"body_omitted,omitempty"`
	// Undecodable says why the body is no event.
	Undecodable string `json:"undecodable,omitempty"`
	// Redrivable is empty when the message can be published again, else why not.
	Refusal string `json:"redrive_refused,omitempty"`
	Advice  string `json:"advice"`
	// size is that of the whole body, in bytes.
	size int
}

func showLetter(ctx context.Context, a *cli.App, store runner.Store, l *Letter, secrets bool) error {
	size := len(l.raw.Data)
	if !secrets {
		l.raw = redactLetter(l.raw)
		l.Detail = l.raw.Detail
	}
	s := shownLetter{
		Letter: l, Who: l.address.Who, Headers: l.raw.Headers, Omitted: l.raw.Omitted, size: size,
		Advice: cmp.Or(advice[l.Reason], defaultAdvice),
	}
	switch {
	case json.Valid(l.raw.Data):
		s.Body = l.raw.Data
	case utf8.Valid(l.raw.Data) && len(l.raw.Data) > 0:
		s.Body, _ = json.Marshal(string(l.raw.Data)) // a text always encodes
	default:
		s.Binary = l.raw.Data
	}
	if l.undecodable != nil && !l.raw.Omitted {
		s.Undecodable = l.undecodable.Error()
	}
	s.Status = runStatus(ctx, store, l)
	if err := redrivable(ctx, store, l); err != nil {
		s.Refusal = messageOf(err)
	}
	return a.Print(s, func(w io.Writer) error { return s.write(w, a.Verbose) })
}

// messageOf is what an error says to people.
func messageOf(err error) string {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return err.Error()
	}
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

func (s shownLetter) write(w io.Writer, full bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, show.Visible(value, false))
		}
	}
	row("dead letter", strconv.FormatUint(s.Sequence, 10))
	row("when", show.When(s.At))
	row("reason", string(s.Reason))
	row("detail", strings.TrimPrefix(s.Detail, string(s.Reason)+": "))
	row("came on", s.Subject)
	row("stored as", fmt.Sprintf("message %d of %s", s.Origin, s.Stream))
	row("published by", s.Who)
	row("agent", s.Agent)
	if s.Run != "" {
		row("run", s.Run+" ("+s.Status+")")
	}
	if s.undecodable == nil {
		row("event", s.Event)
		row("type", s.Type)
		row("source", s.event.Source)
		row("answers", s.event.ParentID)
		row("contract", s.event.DataSchema)
	} else {
		row("no event", s.Undecodable)
	}
	if s.Redrives > 0 {
		row("redriven", fmt.Sprintf("%d× before", s.Redrives))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	s.writeMessage(w, full)
	fmt.Fprintf(w, "\nwhat to do\n%s\n", margin(s.Advice))
	if s.Refusal != "" {
		fmt.Fprintf(w, "  It cannot be redriven: %s.\n", s.Refusal)
	} else {
		fmt.Fprintf(w, "  agentd dlq redrive %d\n", s.Sequence)
	}
	_, err := fmt.Fprintf(w, "  agentd dlq drop %d --yes\n", s.Sequence)
	return err
}

// most is how many bytes of a body are shown.
const most = 4000

func (s shownLetter) writeMessage(w io.Writer, full bool) {
	if len(s.Headers) > 0 {
		fmt.Fprintln(w, "\nheaders")
		for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
			fmt.Fprintf(w, "  %s: %s\n", show.Visible(name, false), show.Visible(strings.Join(s.Headers[name], ", "), false))
		}
	}
	fmt.Fprintf(w, "\nbody (%d bytes)\n", s.size)
	text := ""
	switch {
	case s.Omitted:
		text = "too large to be kept, and no longer in " + s.Stream
	case s.Body != nil && json.Valid(s.raw.Data):
		text = show.Indent(s.Body)
	case s.Body != nil:
		text = string(s.raw.Data)
	default:
		text = fmt.Sprintf("%q", s.raw.Data)
	}
	if len(text) > most && !full {
		text = strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("\n… %d more; see --verbose", len(text)-most)
	}
	fmt.Fprintln(w, margin(show.Visible(text, true)))
}

// margin indents each line.
func margin(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

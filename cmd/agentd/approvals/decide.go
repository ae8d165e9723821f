package approvals

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/requests"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
)

// decided is what a decision became, for people and scripts.
type decided struct {
	Request string          `json:"request"`
	Run     string          `json:"run"`
	Tool    string          `json:"tool,omitempty"`
	Args    json.RawMessage `json:"args,omitempty"`
	// Calls are those that were decided, of a request for several.
	Calls []sdk.PermissionCall `json:"calls,omitempty"`
	client.Outcome
	Decision sdk.Decision       `json:"decision"`
	Scope    sdk.GrantScope     `json:"scope,omitempty"`
	mode     sdk.PermissionMode // of the request
	plan     bool               // it is for a plan
	// resume is the command that resumes the run, where it is paused.
	resume string
}

// decide publishes a decision and tells what became of it. A refusal is the command's error.
func decide(ctx context.Context, a *cli.App, d *deskClient, detail requests.Detail, p sdk.PermissionDecision) error {
	outcome, err := d.Decide(ctx, detail.ID, d.approver.Who, p)
	if err != nil {
		return err
	}
	r := decided{
		Request: detail.ID, Run: detail.Run, Tool: detail.Request.Tool, Args: detail.Request.Args, Outcome: outcome,
		Decision: p.Decision, Scope: p.Scope, mode: detail.Request.Mode, plan: detail.Type == sdk.TypePlanReview,
	}
	if p.Decision == sdk.DecisionAllow && outcome.State == client.OutcomeCounted {
		// Whether the run is paused is worth a word, and no error where it cannot be known.
		if status, err := d.conn.Speaking(cli.Source).Status(ctx, client.Run{Agent: detail.Agent, Name: detail.Run}); err == nil && status.Paused != nil {
			r.resume = d.conn.CommandLine("runs", "resume", detail.Run)
		}
	}
	made := []sdk.PermissionCall{{Tool: r.Tool, Args: r.Args}}
	if len(p.Args) > 0 {
		r.Args, made[0].Args = p.Args, p.Args
	}
	if len(detail.Request.Calls) > 0 {
		r.Calls = namedCalls(detail.Request, p)
		made = r.Calls
	}
	if r.plan {
		made = nil // whoever decides has read it
	}
	fmt.Fprintf(a.Err, "as %s\n", d.approver)
	if outcome.State == client.OutcomeRefused && a.Output == cli.OutputText {
		return r.refusal()
	}
	err = a.Print(r, func(w io.Writer) error {
		for _, c := range made {
			fmt.Fprintf(w, "%s %s\n", show.Line(c.Tool, show.LineMax), show.Line(string(c.Args), show.LineMax))
		}
		_, err := fmt.Fprintln(w, r.effect())
		return err
	})
	if err == nil && outcome.State == client.OutcomeRefused {
		return cli.Exit(cli.ExitFailure)
	}
	return interrupted(ctx, outcome, err)
}

// interrupted ends a command with its code that a person interrupted before it was known what becomes of an answer, which is stored.
func interrupted(ctx context.Context, o client.Outcome, err error) error {
	if err == nil && o.State == client.OutcomeSent && ctx.Err() != nil {
		return cli.Exit(cli.ExitInterrupted)
	}
	return err
}

func (r *decided) refusal() error {
	text := "refused: " + show.Visible(r.Refused)
	if r.Open {
		text += "; the request is still open"
	}
	return sdk.Errorf(sdk.CodeDecisionRefused, "%s", text)
}

// effect says what the decision means.
func (r *decided) effect() string {
	text := map[sdk.Decision]string{
		sdk.DecisionAllow: "allowed; the call goes out", sdk.DecisionDeny: "denied; the model is told",
		sdk.DecisionAsk:    "asked back; the call is not made, and the model is told the question",
		sdk.DecisionResult: "given; the call is not made, and the model is told this result",
	}[r.Decision]
	switch {
	case r.State == client.OutcomeSent:
		return "sent; it is stored, and no worker has handled it yet"
	case r.Quorum > 0:
		return fmt.Sprintf("counted; %d of %d approvals are there", r.Allowed, r.Quorum)
	case r.plan && r.resume != "":
		return "approved; the plan is carried out when the run is resumed: " + r.resume
	case r.plan && r.Decision == sdk.DecisionAllow:
		return "approved; the plan is carried out"
	case r.plan:
		return "not approved; the planner is told why, and may make another plan"
	case r.Decision == sdk.DecisionAllow && r.mode == sdk.PermissionRetry:
		text = "allowed; the model is told, and may make this call once"
	case r.Queued && r.Undecided > 0:
		text = "allowed; the call waits for its round, where " + undecided(r.Undecided)
	case r.Queued:
		text = "allowed; the call waits for those before it"
	case r.resume != "":
		text = "allowed; the run is paused, and the call goes out when it is resumed: " + r.resume
	}
	if r.Decision == sdk.DecisionAllow && r.Scope != "" && r.Scope != sdk.ScopeCall {
		text += fmt.Sprintf(", and further ones within %s", r.Scope)
	}
	if r.Refused != "" {
		text += "; not for every call: " + show.Visible(r.Refused)
	}
	if r.Rest > 0 {
		text += fmt.Sprintf("; %s of the request not decided yet", show.Count(r.Rest, "call"))
	}
	return text
}

func undecided(n int) string {
	if n == 1 {
		return "one more request is not decided yet"
	}
	return fmt.Sprintf("%d more requests are not decided yet", n)
}

// request is the permission request with that id.
func (d *deskClient) request(ctx context.Context, id string) (requests.Detail, error) {
	detail, err := d.Detail(ctx, id)
	if err == nil {
		err = d.mustAsk(detail)
	}
	return detail, err
}

// mustAsk fails for an item that nobody can decide on.
func (d *deskClient) mustAsk(detail requests.Detail) error {
	if detail.Request != nil {
		return nil
	}
	return sdk.Errorf(sdk.CodeDecisionRefused, "%s is a %s, not a permission request; answer it: %s", detail.Short, detail.Kind, d.command(verbAnswer, detail.Short))
}

// decideCommand is a command that decides one request.
func decideCommand(a *cli.App, f *approvalsFlags, id string, p *sdk.PermissionDecision, calls []string) func(context.Context) error {
	return func(ctx context.Context) error {
		return withDesk(ctx, a, f, func(d *deskClient) error {
			detail, err := d.request(ctx, id)
			if err != nil {
				return err
			}
			named, err := onCalls(detail.Request, *p, calls)
			if err != nil {
				return err
			}
			return decide(ctx, a, d, detail, named)
		})
	}
}

func approveCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	p := sdk.PermissionDecision{Decision: sdk.DecisionAllow}
	var scope string
	var lasts time.Duration
	var calls []string
	cmd := &cobra.Command{
		Use:     "approve ID",
		Aliases: []string{"allow"},
		Short:   "Allow a call, or with a wider scope further ones like it",
		Long: "approve allows exactly the call that the request shows. A wider --scope must be one that the request offers:\n\n" +
			"  run+tool               every call of the tool in this run\n" +
			"  run+tool+pattern       those whose arguments match --pattern, a CEL expression such as: args.amount < 100\n" +
			"  principal+agent+tool   every call of the tool by this agent in runs that the same principal started",
		Example: "  agentd approvals approve k3f9qa\n  agentd approvals approve k3f9qa --scope run+tool --uses 5 --for 1h",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Scope = sdk.GrantScope(scope)
			if p.Scope == "" && p.Pattern != "" {
				p.Scope = sdk.ScopeToolPattern
			}
			if cmd.Flags().Changed("for") {
				if lasts <= 0 {
					return cli.Usagef("--for %s: want a time in the future", lasts)
				}
				p.ExpiresMillis = time.Now().Add(lasts).UnixMilli()
			}
			return decideCommand(a, f, args[0], &p, calls)(cmd.Context())
		},
	}
	flags := cmd.Flags()
	callsFlag(cmd, &calls)
	flags.StringVar(&scope, "scope", "", "how far it reaches (default: this call)")
	flags.StringVar(&p.Pattern, "pattern", "", "a CEL expression over args, for the scope run+tool+pattern")
	cli.CountVar(flags, &p.Uses, "uses", 0, 1, "how often a wider scope may be used (default: without limit)")
	cli.DurationVar(flags, &lasts, "for", 0, "how long a wider scope lasts, such as 1h (default: as long as the run)")
	flags.StringVar(&p.Reason, "reason", "", "why, for the record and the model")
	scopes := []string{string(sdk.ScopeCall), string(sdk.ScopeTool), string(sdk.ScopeToolPattern), string(sdk.ScopePrincipal)}
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions(scopes, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func denyCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	p := sdk.PermissionDecision{Decision: sdk.DecisionDeny}
	var calls []string
	cmd := &cobra.Command{
		Use:     "deny ID [--reason TEXT]",
		Short:   "Refuse a call; the model is told, with the reason",
		Example: `  agentd approvals deny k3f9qa --reason "the invoice is paid already"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decideCommand(a, f, args[0], &p, calls)(cmd.Context())
		},
	}
	callsFlag(cmd, &calls)
	cmd.Flags().StringVar(&p.Reason, "reason", "", "why; the model reads it (default: it reads that the call is not allowed)")
	return cmd
}

func askCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	var calls []string
	cmd := &cobra.Command{
		Use:     "ask ID QUESTION",
		Short:   "Ask back: the call is not made, and the model is told the question",
		Example: `  agentd approvals ask k3f9qa "Which invoice is this for?"`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := sdk.PermissionDecision{Decision: sdk.DecisionAsk, Reason: args[1]}
			return decideCommand(a, f, args[0], &p, calls)(cmd.Context())
		},
	}
	callsFlag(cmd, &calls)
	return cmd
}

func giveCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	var calls []string
	cmd := &cobra.Command{
		Use:     "give ID RESULT",
		Short:   "Give a call its result, where the request offers that: the call is not made",
		Example: `  agentd approvals give k3f9qa '{"reservation": "LX1-7"}'`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !json.Valid([]byte(args[1])) {
				return cli.Usagef("the result is not JSON: %s", args[1])
			}
			p := sdk.PermissionDecision{Decision: sdk.DecisionResult, Result: json.RawMessage(args[1])}
			return decideCommand(a, f, args[0], &p, calls)(cmd.Context())
		},
	}
	callsFlag(cmd, &calls)
	return cmd
}

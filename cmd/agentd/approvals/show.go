package approvals

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/requests"
	"agentd/internal/show"
	"agentd/sdk"
)

func showCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show everything about one of them: who asks, why, exactly what, and who decided so far",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDesk(cmd.Context(), a, f, func(d *deskClient) error {
				s, err := d.show(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.Print(s, func(w io.Writer) error {
					if err := s.Write(w, a.Verbose); err != nil || s.Lost {
						return err
					}
					return writeCommands(w, d, &s)
				})
			})
		},
	}
}

func (d *deskClient) show(ctx context.Context, id string) (show.Request, error) {
	detail, unrecorded, err := d.View(ctx, id, d.approver.Who)
	if err != nil {
		return show.Request{}, err
	}
	s := show.Request{Detail: detail}
	if unrecorded != nil {
		s.Unrecorded = show.Problem(unrecorded)
	}
	if detail.Kind != requests.KindPermission || len(detail.Sent) == 0 {
		return s, nil
	}
	if s.Decisions, err = d.History(ctx, detail.Item); err != nil {
		s.Unknown = "whether they counted is not known now: " + err.Error()
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			s.Unknown = "whether they counted is not known now: no worker serves " + detail.Agent
		}
	}
	return s, nil
}

// verbAnswer is the command that answers.
const verbAnswer = "answer"

// writeCommands says what can be done.
func writeCommands(w io.Writer, d *deskClient, s *show.Request) error {
	lines := [][]string{{verbAnswer, s.Short, "TEXT"}}
	switch s.Kind {
	case requests.KindPermission:
		lines = [][]string{{"approve", s.Short}, {"deny", s.Short, "--reason", "TEXT"}, {"ask", s.Short, "QUESTION"}}
		if s.Request.Mode == sdk.PermissionHold && s.Request.Quorum <= 1 {
			lines = append(lines, []string{"edit", s.Short})
		}
		if s.Request.Results {
			lines = append(lines, []string{"give", s.Short, "RESULT"})
		}
		for i := range lines {
			if len(s.Request.Calls) > 0 {
				lines[i] = append(lines[i], "--call", "CALL")
			}
		}
	case requests.KindTask:
		lines = [][]string{{verbAnswer, s.Short, "--input", "JSON"}}
	case requests.KindTurn:
		lines = append(lines, []string{verbAnswer, s.Short, "--end"})
	case requests.KindQuestion:
		if len(s.Form()) > 0 {
			lines = [][]string{{verbAnswer, s.Short, "--input", "JSON"}}
		}
	}
	fmt.Fprintln(w)
	for _, l := range lines {
		fmt.Fprintln(w, d.command(l...))
	}
	return nil
}

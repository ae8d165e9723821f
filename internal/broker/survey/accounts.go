package survey

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/finding"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// CheckAccounts finds what lets users of the server do what is not theirs: the accounts of an older agentd, consumers that push,
// and, where monitors are the base URLs of the servers' monitoring ports, users in the account of the streams that are neither
// workers nor the operator.
func CheckAccounts(ctx context.Context, c *broker.Conn, monitors string) ([]finding.Finding, error) {
	if c.Embedded() {
		return nil, nil
	}
	account, err := accountOf(ctx, c)
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		return []finding.Finding{finding.Warning("accounts_old", "this NATS user may not ask for its account, as all users of a file of agentd nats-config may: in the files of older versions "+
			"any user can have the server delete streams",
			"make the server's configuration anew: agentd nats-config (docs/security.md, From one account to several)")}, nil
	case errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}): // the server has no such service
	case err != nil:
		return nil, fmt.Errorf("ask for this user's account: %w", err)
	}
	findings, err := pushing(ctx, c)
	if err != nil || account == "" {
		return findings, err
	}
	return append(findings, strangers(ctx, c, monitorsIn(monitors), account)...), nil
}

// accountOf is the name of this user's account.
func accountOf(ctx context.Context, c *broker.Conn) (string, error) {
	var answer struct {
		Data struct {
			Account string `json:"account"`
		} `json:"data"`
	}
	err := c.Request(ctx, "$SYS.REQ.USER.INFO", nil, &answer)
	return answer.Data.Account, err
}

// pushing finds consumers that have the server publish. agentd makes none.
func pushing(ctx context.Context, c *broker.Conn) ([]finding.Finding, error) {
	var findings []finding.Finding
	err := c.Permitted(ctx, func(ctx context.Context) error {
		layout, err := c.Layout(ctx)
		if err != nil {
			return err
		}
		for _, planned := range (provision.Plan{Partitions: layout.Partitions()}).Streams(c.Subjects()) {
			name := planned.Name
			stream, err := c.JetStream().Stream(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				continue
			}
			if err != nil {
				return fmt.Errorf("look at stream %s: %w", name, err)
			}
			consumers := stream.ListConsumers(ctx)
			for info := range consumers.Info() {
				if to := info.Config.DeliverSubject; to != "" {
					findings = append(findings, finding.Error("consumer_pushes",
						fmt.Sprintf("consumer %s/%s has the server publish on %s, with the rights of the server", name, info.Name, to),
						fmt.Sprintf("delete it before the server starts again: nats consumer rm %s %s", name, info.Name)))
				}
			}
			if err := consumers.Err(); err != nil {
				return fmt.Errorf("look at the consumers of %s: %w", name, err)
			}
		}
		return nil
	})
	if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		return []finding.Finding{finding.NotPermitted("look at the consumers of others", "whether one of them pushes")}, nil
	}
	return findings, err
}

// strangers finds who is connected in the account of the streams, and is neither this user nor a worker.
func strangers(ctx context.Context, c *broker.Conn, monitors []string, account string) []finding.Finding {
	var names []string
	query := "/connz?auth=true&subs=true&limit=10000&acc=" + url.QueryEscape(account)
	for _, monitor := range monitors {
		var connections struct {
			Connections []struct {
				User          string   `json:"authorized_user"`
				Subscriptions []string `json:"subscriptions_list"`
			} `json:"connections"`
		}
		if err := monitored(ctx, monitor, query, &connections); err != nil {
			continue // CheckSync says that it does not answer
		}
		for _, connection := range connections.Connections {
			worker := slices.Contains(connection.Subscriptions, c.Subjects().All(wire.KindWake))
			if own := connection.User == c.User(); !worker && !own && !slices.Contains(names, connection.User) {
				names = append(names, connection.User)
			}
		}
	}
	if names == nil {
		return nil
	}
	slices.Sort(names)
	return []finding.Finding{finding.Warning("user_beside_streams",
		fmt.Sprintf("in the account of the streams, %s, are users that are neither workers nor this one: %s", account, strings.Join(names, ", ")),
		"give each an account of its own: agentd nats-config (docs/security.md)")}
}

package provision

import (
	"context"
	"fmt"
	"strings"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/rebuild"
	"agentd/internal/broker/streams"
	"agentd/internal/setup"
)

// rebuilding is which streams are made anew, and where their backups are meanwhile.
type rebuilding struct {
	zones []string
	dir   string
}

func (r rebuilding) rebuild(ctx context.Context, a *cli.App, c *cli.Client, dry bool) ([]provision.Change, error) {
	if len(r.zones) == 0 {
		return nil, nil
	}
	o := rebuild.Options{
		Conn: c.Conn, Plan: setup.Plan(c.Config), Dir: r.dir,
		Tell: func(what string) { fmt.Fprintln(a.Err, what) },
	}
	for _, name := range r.zones {
		o.Zones = append(o.Zones, streams.Zone(strings.ToUpper(name)))
	}
	if dry {
		return rebuild.Planned(ctx, o)
	}
	return rebuild.Streams(ctx, o)
}

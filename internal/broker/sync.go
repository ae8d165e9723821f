package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/address"
	"agentd/internal/broker/datafolder"
	"agentd/internal/finding"
	"agentd/sdk"
)

// CheckSync finds whether the servers write to disk before they confirm, and whether each is as it should be. A client cannot see that:
// for servers that are not agentd's own, monitors are the base URLs of their monitoring ports with commas between them, or "". known are
// the names of the servers of a cluster.
func (c *Conn) CheckSync(ctx context.Context, monitors string, known []string) ([]finding.Finding, error) {
	if c.embedded || c.nc.ConnectedServerName() == datafolder.ServerName {
		return nil, nil
	}
	const remedy = `set jetstream { sync_interval: always } in the server's configuration`
	if monitors == "" {
		return []finding.Finding{finding.Warning("sync_unknown", "whether the server syncs every write to disk cannot be seen from here",
			remedy+"; run agentd doctor with --monitor to see it")}, nil
	}
	var findings []finding.Finding
	known = slices.Clone(known)
	for _, url := range monitorsIn(monitors) {
		m, err := lookAtMonitor(ctx, url)
		if ctx.Err() != nil {
			return findings, ctx.Err()
		}
		if err != nil {
			findings = append(findings, finding.Error("monitor", fmt.Sprintf("the monitoring port %s does not answer: %s", address.Hide(url), err),
				"start the server, or correct --monitor"))
			continue
		}
		known = slices.DeleteFunc(known, func(name string) bool { return name == m.name })
		if m.problem != "" {
			findings = append(findings, finding.Error("server_unhealthy", fmt.Sprintf("server %s says: %s", m.name, m.problem),
				"look at its log and its disk; it may be catching up"))
		}
		if !m.syncs {
			findings = append(findings, finding.Warning("sync_interval",
				fmt.Sprintf("server %s confirms writes before they are on disk; a power failure may lose or fork runs", m.name),
				remedy))
		}
	}
	if len(known) > 0 {
		findings = append(findings, finding.Warning("sync_unknown", "whether they sync every write to disk cannot be seen of "+strings.Join(known, ", "),
			"name their monitoring ports too: --monitor URL,URL,URL"))
	}
	return findings, nil
}

// monitorsIn are the URLs of a list with commas, and spaces, between them.
func monitorsIn(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// monitor is what a server's monitoring port says.
type monitor struct {
	name  string
	syncs bool
	// problem is why it is not healthy; empty is that it is.
	problem string
}

func lookAtMonitor(ctx context.Context, url string) (monitor, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	var server struct {
		Name string `json:"server_name"`
	}
	var jsz struct {
		Disabled bool `json:"disabled"`
		Config   struct {
			SyncAlways bool `json:"sync_always"`
		} `json:"config"`
	}
	if err := monitored(ctx, url, "/varz", &server); err != nil {
		return monitor{}, err
	}
	if err := monitored(ctx, url, "/jsz", &jsz); err != nil {
		return monitor{}, err
	}
	if jsz.Disabled {
		return monitor{}, sdk.Errorf(sdk.CodeConfig, "JetStream is not enabled on the server")
	}
	m := monitor{name: server.Name, syncs: jsz.Config.SyncAlways}
	if err := monitored(ctx, url, "/healthz?js-enabled-only=false", &struct{}{}); err != nil {
		m.problem = err.Error()
	}
	return m, nil
}

package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"agentd/internal/address"
	"agentd/internal/broker"
	"agentd/internal/broker/datafolder"
	"agentd/internal/finding"
	"agentd/sdk"
)

// CheckSync finds whether the servers write to disk before they confirm, and whether each is as it should be. A client cannot see that:
// for servers that are not agentd's own, monitors are the base URLs of their monitoring ports with commas between them, or "". known are
// the names of the servers of a cluster.
func CheckSync(ctx context.Context, c *broker.Conn, monitors string, known []string) ([]finding.Finding, error) {
	if c.Embedded() || c.JetStream().Conn().ConnectedServerName() == datafolder.ServerName {
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

// monitored asks a server's monitoring port.
func monitored(ctx context.Context, monitor, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(monitor, "/")+path, nil)
	if err != nil {
		return address.Failure(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return address.Failure(err)
	}
	defer func() { _ = response.Body.Close() }() // nothing was written to it
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", request.URL.Host+request.URL.Path, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, 32<<20)).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", request.URL.Host+request.URL.Path, err)
	}
	return nil
}

// Monitored is what a server's monitoring port says of it.
type Monitored struct {
	Name string
	// Syncs is whether it writes to disk before it confirms.
	Syncs bool
	// CPU is how much of one processor it uses, in percent, and Cores how many it has.
	CPU   float64
	Cores int
}

// Monitor asks the monitoring port at url, such as http://nats:8222.
func Monitor(ctx context.Context, url string) (Monitored, error) {
	seen, err := lookAtMonitor(ctx, url)
	if err != nil {
		return Monitored{}, fmt.Errorf("ask the monitoring port %s: %w", address.Hide(url), err)
	}
	var load struct {
		CPU   float64 `json:"cpu"`
		Cores int     `json:"cores"`
	}
	if err := monitored(ctx, url, "/varz", &load); err != nil {
		return Monitored{}, fmt.Errorf("ask the monitoring port %s: %w", address.Hide(url), err)
	}
	return Monitored{Name: seen.name, Syncs: seen.syncs, CPU: load.CPU, Cores: load.Cores}, nil
}

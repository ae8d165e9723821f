package main

import (
	"slices"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

// The number of partitions comes from the file, the environment or a flag, is settled by the first, and is found wrong wherever it is
// another. What does not say it takes it as it is.
func TestProvision_PartitionsAreForEver(t *testing.T) {
	t.Parallel()
	c := newClinic(t, true)
	says := func(exit int, want string, command ...string) {
		t.Helper()
		if code, out := c.agentd(command...); code != exit || !strings.Contains(out, want) {
			t.Errorf("agentd %s exits with %d and says\n%s\nwant %d and %q", strings.Join(command, " "), code, out, exit, want)
		}
	}
	const other = "the streams were provisioned with 1 partition, and nats.partitions is 4: their number is for ever; " +
		"to have more, begin anew under another nats.root (docs/operations.md, \"Partitions\")"
	says(cli.ExitUsage, other, "provision", "--partitions", "4")
	c.write("nats: {partitions: 3}\n" + healthyConfig)
	says(cli.ExitFindings, c.config+":1:20: nats.partitions: expected", "check", c.config)
	c.write("nats: {partitions: 4}\n" + healthyConfig)
	says(cli.ExitFindings, other, "doctor")
	says(cli.ExitUsage, other, "provision", "--dry-run")

	c.write("nats: {partitions: 4, root: divided}\n" + healthyConfig)
	says(cli.ExitOK, "would be created stream DIVIDED_TMR_3\n", "provision", "--dry-run")
	says(cli.ExitOK, "created consumer DIVIDED_TMR_3/agent_clerk\n", "provision")
	says(cli.ExitUsage, "agentd: the streams were provisioned with 4 partitions, and nats.partitions is 2: their number is for ever", "provision", "--partitions", "2")
	c.write("nats: {root: divided}\n" + healthyConfig)
	says(cli.ExitOK, "nothing to change", "provision")
	says(cli.ExitOK, "", "doctor")
	says(cli.ExitOK, "", "runs", "list")
	var names []string
	streams := c.js.StreamNames(t.Context())
	for name := range streams.Name() {
		names = append(names, name)
	}
	for name, there := range map[string]bool{
		"DIVIDED_RUN": false, "DIVIDED_TMR": false, "DIVIDED_OUT": false, "DIVIDED_IN": false, "DIVIDED_RUN_0": true, "DIVIDED_RUN_3": true, "DIVIDED_OUT_3": true,
		"DIVIDED_IN_0": true, "DIVIDED_START": true, "DIVIDED_DONE": true,
	} {
		if slices.Contains(names, name) != there {
			t.Errorf("the streams are %v; of %s, want %v", names, name, there)
		}
	}
}

package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/survey"
	"agentd/internal/worker"
	"agentd/sdk"
)

// found are the codes of what is wrong with the servers as a connection sees them, and the text of it all.
func (s *system) found(c *broker.Conn, replicas int) (codes []string, text string) {
	s.t.Helper()
	plan := worker.Plan([]sdk.AgentSpec{adder()})
	plan.Replicas = replicas
	seen, findings, err := survey.CheckServers(s.t.Context(), c, plan)
	check(s.t, err)
	text = fmt.Sprint(seen.Leads)
	for _, f := range findings {
		codes = append(codes, f.Code)
		text += "\n" + f.Message
	}
	return codes, text
}

// until waits until something is found that names a server, or, without a code, nothing.
func (s *system) until(c *broker.Conn, code, names string) {
	s.t.Helper()
	began := time.Now()
	for {
		codes, text := s.found(c, servers)
		if code == "" && codes == nil || slices.Contains(codes, code) && strings.Contains(text, "server "+names) {
			s.t.Logf("%q is found after %s: %s", code, time.Since(began).Round(100*time.Millisecond), text)
			return
		}
		if time.Since(began) > 3*time.Minute {
			s.t.Fatalf("%q of %s is not found: %s", code, names, text)
		}
	}
}

const servers = 3

// What is wrong with the servers of a cluster is found and named: a stream with too few replicas, a server that hangs, one that has lost
// its disk, and that from a server without a majority nothing can be seen.
func TestDoctor_NamesWhatIsWrongWithTheServers(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.until(s.control, "", "")
	js := s.control.JetStream()
	const calls = "AGENTD_OUT"
	single := func(replicas int) {
		stream, err := js.Stream(t.Context(), calls)
		check(t, err)
		config := stream.CachedInfo().Config
		config.Replicas = replicas
		_, err = js.UpdateStream(t.Context(), config)
		check(t, err)
	}
	single(1)
	for replicas, want := range map[int]string{servers: "replicas", 0: "single_replica"} {
		if codes, text := s.found(s.control, replicas); !slices.Contains(codes, want) || !strings.Contains(text, calls) {
			t.Errorf("of one replica where %d are wanted, it finds %v: %s", replicas, codes, text)
		}
	}
	single(servers)
	s.until(s.control, "", "")

	frozen := s.other(s.control)
	frozen.Freeze()
	s.until(s.control, "server_away", frozen.Name)
	frozen.Thaw()
	s.until(s.control, "", "")

	frozen.Kill()
	check(t, frozen.LoseDisk())
	s.until(s.control, "server_away", frozen.Name)
	check(t, frozen.Begin())
	s.until(s.control, "", "")

	minority := s.connect(frozen.URL())
	frozen.CutOff()
	s.until(minority, "no_leader", frozen.Name)
	frozen.Rejoin()
	s.until(s.control, "", "")
}

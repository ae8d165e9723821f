package events

import (
	"bytes"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk/wire"
)

// What the console and workers ask of each other is not what travels, unless somebody wants all of it.
func TestTail_ShowsQueriesWithAllAlone(t *testing.T) {
	t.Parallel()
	s := wire.DefaultSubjects()
	run := wire.NewRunKey("one")
	queries := map[string]string{
		s.Read("AGENTD_RUN", "agentd.run.>"): `{"seq":3}`, s.IndexQuery(): `{}`, s.Index(run): `{"run":"one"}`, s.Get("desk"): `{}`,
		s.Contract("shop.refund"): `{}`, s.Wake("desk", run): ``,
	}
	for subject, data := range queries {
		for all, want := range map[bool]int{false: 0, true: 1} {
			var out bytes.Buffer
			tail{a: &cli.App{Streams: cli.Streams{Out: &out}}, subjects: s, flags: tailFlags{all: all}}.print(subject, nil, []byte(data))
			if lines := strings.Count(out.String(), "\n"); lines != want {
				t.Errorf("%s, with all %t: %d lines, want %d", subject, all, lines, want)
			}
		}
	}
}

// The mark that is left of a dead letter which somebody dealt with is not a new one.
func TestTail_TellsAMarkFromADeadLetter(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"dropped": "dlq    -                        unknown_run: the dead letter was dropped\n",
		"":        "dlq    -                        unknown_run: no run waits for this message\n",
	} {
		var out bytes.Buffer
		headers := map[string][]string{"agentd-reason": {"unknown_run"}}
		if how == "" {
			headers["agentd-detail"] = []string{"unknown_run: no run waits for this message"}
		} else {
			headers["agentd-settled"] = []string{how}
		}
		s := wire.DefaultSubjects()
		tail{a: &cli.App{Streams: cli.Streams{Out: &out}}, subjects: s}.print(s.DeadLetter("unknown_run", "AGENTD_IN", 3), headers, nil)
		if _, line, _ := strings.Cut(out.String(), "  "); line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
}

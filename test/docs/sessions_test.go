package docs

import (
	"strings"
	"testing"
)

// session types blocks of a page.
type session struct {
	page string
	// blocks are texts of the blocks that it types, in the order of the page; none is all that have no mark.
	blocks []string
	// at prepares where they are typed: servers, files, and what differs from the page.
	at func(*testing.T) *shell
}

var sessions []session

func init() { // helpers of the sessions read pages, whose check reads the sessions
	sessions = []session{
		{"README.md", []string{"mock-llm --script"}, travelDesk},
		{"README.md", []string{"approvals approve ID"}, clerk},
		{"README.md", []string{"agentd provision"}, production},
		{"examples/traveldesk/README.md", nil, travelDesk},
		{"docs/approvals.md", []string{"approvals list"}, clerk},
		{"docs/approvals.md", []string{"openssl"}, openssl},
		{"docs/contracts.md", nil, contractsInGit},
		{"docs/dead_letters.md", nil, deadLetters},
		{"docs/encryption.md", nil, keys},
		{"docs/go.md", nil, ownModule},
		{"docs/operations.md", []string{"agentd doctor"}, monitored},
		{"docs/quickstart.md", nil, quickstart},
		{"docs/reliability.md", nil, lostRun},
		{"docs/scale.md", nil, newShell},
		{"docs/security.md", []string{"nats-config"}, roles},
		{"docs/security.md", []string{"audit export"}, finishedTrip},
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	for i := range sessions {
		s := &sessions[i]
		t.Run(strings.TrimSuffix(s.page, ".md")+" "+strings.Join(s.blocks, " "), func(t *testing.T) {
			t.Parallel()
			sh := s.at(t)
			for _, b := range blocks(t, s.page) {
				if b.types() && b.mark == "" && b.session() == s {
					sh.typeBlock(b)
				}
			}
		})
	}
}

// The README shows what `make run` prints. Its four calls and answers may come in another order.
func TestReadme_ShowsWhatTheExamplePrints(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.env = append(s.env, "AGENTD_BIN="+programs(t).dir)
	s.folder("traveldesk", "examples/traveldesk")
	printed := s.typed("bash ./run.sh")
	s.like["nats://127.0.0.1:4222"] = `nats://127\.0\.0\.1:\d+`
	s.like["run-pi5jq4n52rtx4mfyefn6mlwcry"] = `run-\w+`
	for _, b := range blocks(t, "README.md") {
		if !strings.HasPrefix(b.text, "model     scripted") {
			continue
		}
		whole := strings.ReplaceAll(b.text, "\n          together", " together") // a terminal's width
		for line := range strings.SplitSeq(strings.TrimSpace(whole), "\n") {
			if !s.pattern(line).MatchString(printed) {
				t.Errorf("%s shows %q, which is not printed:\n%s", b, line, printed)
			}
		}
		return
	}
	t.Error("README.md does not show a run")
}

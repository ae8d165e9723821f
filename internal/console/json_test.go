package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/streams"
	"agentd/internal/console/live"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/setup"
	"agentd/internal/state/natsstore"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// told is what a program gets in place of a page.
func (b *browser) told(want int, path string, header http.Header) map[string]any {
	b.t.Helper()
	response, body := b.ask(http.MethodGet, "/api/v1"+path, nil, header)
	var told map[string]any
	if err := json.Unmarshal([]byte(body), &told); err != nil || response.StatusCode != want {
		b.t.Fatalf("GET /api/v1%s answers %d; want %d: %v\n%s", path, response.StatusCode, want, err, body)
	}
	if kind := response.Header.Get("Content-Type"); kind != wire.ContentTypeJSON {
		b.t.Errorf("GET /api/v1%s is of the type %q", path, kind)
	}
	if sniffed := response.Header.Get("X-Content-Type-Options"); sniffed != "nosniff" {
		b.t.Errorf("GET /api/v1%s may be taken for something else", path)
	}
	return told
}

// within is the value at a path of keys and numbers.
func within(value any, path ...any) any {
	for _, at := range path {
		switch at := at.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[at]
		case int:
			list, _ := value.([]any)
			if at >= len(list) {
				return nil
			}
			value = list[at]
		}
	}
	return value
}

// Each page has its JSON, for programs.
func TestPrograms_GetWhatPagesShow(t *testing.T) {
	b := open(t, paying(), "anna", "")
	run := b.start("paid", hostile)
	request := b.asked()
	b.h.PublishRaw(b.h.Conn().Subjects().Root()+".in.x.y.payer.z.c", []byte("<script>\xff\xfe\u202e"))
	job := b.propose("cancel", "run:*", "")
	id, err := url.PathUnescape(strings.TrimPrefix(request, "/inbox/"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		at   []any
		want any
	}{
		{"/", []any{"counts", 0, "value"}, "waiting"},
		{"/", []any{"requests"}, 1.0},
		{"/", []any{"waiting_longest", 0, "waits_for", 0}, "permission for bank_pay"},
		{"/runs", []any{"runs", 0, "run"}, "paid"},
		{"/runs?limit=1", []any{"runs", 0, "waits"}, []any{map[string]any{"id": "c1-0-ubvybyxuczbbxzcuvagy2l4bem", "kind": "permission", "tool": "bank_pay"}}},
		{"/runs?q=run:nothing", []any{"runs"}, []any{}},
		{run, []any{"status"}, "waiting"},
		{run, []any{"waiting", 0, "request"}, id},
		{run, []any{"messages", 1, "call", "tool"}, "bank_pay"},
		{run + "/timeline", []any{"spans", 2, "kind"}, "permission"},
		{run + "/journal", []any{"entries", 0, "kind"}, "replied"},
		{run + "/journal/2", []any{"previous"}, 1.0},
		{run + "/state?at=1", []any{"head", "status"}, "running"},
		{run + "/events", []any{"events", 0, "id"}, "1.0"},
		{"/inbox", []any{"requests", 0, "id"}, id},
		{request, []any{"request", "args", "euros"}, 12.0},
		{"/dead-letters", []any{"dead_letters", 0, "reason"}, "invalid_event"},
		{"/dead-letters/1", []any{"seq"}, 1.0},
		{"/agents", []any{"agents", 0, "agent"}, "payer"},
		{"/agents", []any{"calls", 0, "services", 0}, "bank.pay"},
		{"/agents/payer", []any{"accepts", "type"}, "object"},
		{"/services", []any{"services", 0, "type"}, "bank.pay"},
		{"/contracts/bank.pay", []any{"versions", "1.0.0", "emits", "bank.paid", "type"}, "object"},
		{"/health", []any{"workers", 0, "agent"}, "payer"},
		{"/health", []any{"streams", 0, "name"}, "AGENTD_START"},
		{"/health", []any{"consumers", 1, "name"}, "agent_payer"},
		{"/bulk", []any{"jobs", 0, "verb"}, "cancel"},
		{job, []any{"runs"}, 1.0},
	} {
		if diff := cmp.Diff(test.want, within(b.told(http.StatusOK, test.path, nil), test.at...)); diff != "" {
			t.Errorf("GET /api/v1%s: %v (-want +got):\n%s%v", test.path, test.at, diff, b.told(http.StatusOK, test.path, nil))
		}
	}
	for path, want := range map[string]int{
		"/runs?q=colour:red": http.StatusUnprocessableEntity, "/runs?sort=colour": http.StatusUnprocessableEntity, "/runs/nothing": http.StatusNotFound,
		"/nothing": http.StatusNotFound, run + "/journal/99": http.StatusNotFound, "/inbox/nothing": http.StatusNotFound,
	} {
		if problem := within(b.told(want, path, nil), "error", "errorMessage"); problem == nil || problem == "" {
			t.Errorf("GET /api/v1%s does not say what is wrong", path)
		}
	}
	if problem := fmt.Sprint(within(b.told(http.StatusUnprocessableEntity, "/runs?q=status:done+colour:red", nil), "error", "errorMessage")); !strings.Contains(problem, "character 13") {
		t.Errorf("a filter that cannot be read: %s", problem)
	}
	b.told(http.StatusForbidden, "/runs", http.Header{"Host": {"evil.example"}})
	b.told(http.StatusForbidden, "/runs", http.Header{"Sec-Fetch-Site": {"cross-site"}})
}

// An entry is told as the journal has it, to the last byte.
func TestPrograms_GetEntriesAsTheyAre(t *testing.T) {
	b := open(t, paying(), "anna", "")
	run := b.start("paid", hostile)
	b.asked()
	conn := b.h.Conn()
	store := natsstore.New(conn.JetStream(), streams.Name(conn.Subjects(), streams.Run), conn.Subjects())
	records, err := store.Entries(t.Context(), wire.NewRunKey("paid"), runner.Version{})
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		_, body := b.ask(http.MethodGet, fmt.Sprintf("/api/v1%s/journal/%d", run, record.Rev), nil, nil)
		var told struct{ Entry json.RawMessage }
		if err := json.Unmarshal([]byte(body), &told); err != nil {
			t.Fatal(err)
		}
		got, err := core.DecodeEntry(told.Entry)
		if err != nil {
			t.Fatal(err)
		}
		data, err := got.Encode()
		if err != nil || core.Digest(data) != core.Digest(record.Data) {
			t.Errorf("entry %d: %v\n got %s\nwant %s", record.Rev, err, data, record.Data)
		}
	}
}

// Programs send the token with each request, and never in the clear; who has logged in may ask, too.
func TestPrograms_NeedTheToken(t *testing.T) {
	b := open(t, paying(), "anna", "secret")
	r := b.h.Run("payer", map[string]string{"message": "pay"})
	b.h.Suspended(r, 2)
	bearing := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	for _, header := range []http.Header{nil, bearing("secret2"), bearing(""), {"Authorization": {"Bearer secret"}, "Host": {"console.example"}}} {
		response, body := b.ask(http.MethodGet, "/api/v1/runs/"+r.Subject, nil, header)
		if response.StatusCode != http.StatusUnauthorized || response.Header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(body, "payer") {
			t.Errorf("%v is answered with %d: %s", header, response.StatusCode, body)
		}
	}
	if got := within(b.told(http.StatusOK, "/runs/"+r.Subject, bearing("secret")), "run"); got != r.Subject {
		t.Errorf("who has the token gets %v", got)
	}
	b.told(http.StatusOK, "/runs", http.Header{"Authorization": {"Bearer secret"}, "Host": {"console.example"}, "X-Forwarded-Proto": {"https"}})
	// Pages and actions are for who has logged in.
	before := b.published()
	if response, _ := b.ask(http.MethodPost, "/runs/"+r.Subject+"/cancel", nil, bearing("secret")); response.StatusCode != http.StatusForbidden {
		t.Errorf("an action with the token alone is answered with %d", response.StatusCode)
	}
	if after := b.published(); after != before {
		t.Errorf("it published %d messages", after-before)
	}
	response, _ := b.ask(http.MethodPost, "/login", url.Values{"token": {"secret"}}, nil)
	b.cookies = response.Set
	b.told(http.StatusOK, "/runs", nil)
}

// An operator pauses an agent on its page: no run of it begins until it is resumed.
func TestAgent_IsPausedAndResumed(t *testing.T) {
	b := openWith(t, asking, live.Options{Who: setup.Principal{Who: "anna"}})
	b.post(http.StatusUnprocessableEntity, "/agents/payer/pause", url.Values{"for": {"soon"}})
	to, _ := b.post(http.StatusSeeOther, "/agents/payer/pause", url.Values{"drain": {"1"}, "for": {"2h"}})
	contains(t, b.get(http.StatusOK, to), "The agent is paused", "‖ paused, begun runs go on", "Resume")
	if facts := b.told(http.StatusOK, "/agents/payer", nil); facts["paused"] != true || facts["drain"] != true {
		t.Errorf("%v", facts)
	}
	to, _ = b.post(http.StatusSeeOther, "/agents/payer/resume", nil)
	contains(t, b.get(http.StatusOK, to), "The agent goes on", "Pause: no run begins")
	b.post(http.StatusNotFound, "/agents/nobody/pause", nil)
	b.post(http.StatusNotFound, "/agents/nobody/resume", nil)
	b.begin("goes on")
	readOnly := open(t, paying(), "", "")
	readOnly.post(http.StatusForbidden, "/agents/payer/pause", nil)
	readOnly.post(http.StatusForbidden, "/agents/payer/resume", nil)
}

// More runs may wait for their agent than are woken while somebody waits for a page.
func TestAgent_IsResumedWhileItsRunsAreWoken(t *testing.T) {
	t.Parallel()
	b := openWith(t, asking, live.Options{Who: setup.Principal{Who: "anna"}})
	const many = 500 // which takes 25 s
	for i := range many {
		if err := b.h.Conn().MarkParked(t.Context(), wire.KeyAgentPaused, "payer", wire.NewRunKey(fmt.Sprintf("waits-%d", i)), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	to, _ := b.post(http.StatusSeeOther, "/agents/payer/resume", nil)
	contains(t, b.get(http.StatusOK, to), "The agent goes on")
	poll.Until(t, harness.DefaultPatience(), "some are woken", func() bool {
		left, err := b.h.Conn().ParkedRuns(t.Context(), wire.KeyAgentPaused, "payer")
		if err != nil {
			t.Fatal(err)
		}
		return len(left) < many
	})
}

// The page of health says what streams hold, how far readers are, and who works.
func TestHealth_SaysHowFarReadersAre(t *testing.T) {
	b := open(t, paying(), "anna", "")
	b.start("one", "pay")
	b.asked()
	contains(t, b.get(http.StatusOK, "/health"), "Who answers for the agents", `<a href="/agents/payer">payer</a>`, "agent_payer", "AGENTD_RUN", " KB</td>")
	consumers, _ := b.told(http.StatusOK, "/health", nil)["consumers"].([]any)
	read := 0
	for _, one := range consumers {
		if within(one, "name") == "agent_payer" && within(one, "stream") == "AGENTD_START" {
			read++
			if within(one, "pending") != 0.0 || within(one, "delivered") == nil {
				t.Errorf("%v", one)
			}
		}
	}
	if read != 1 {
		t.Errorf("the consumer of init events is not there: %v", consumers)
	}
	b.h.StopWorkers()
	contains(t, b.get(http.StatusOK, "/health"), "No worker answers")
}

// A run's page names its tags, and leads to the runs that it called.
func TestRun_HasItsTagsAndWhatItCalled(t *testing.T) {
	b := openWith(t, asking, live.Options{Who: setup.Principal{Who: "anna"}})
	init := b.h.Init("payer", map[string]string{"message": "hi"})
	init.Subject, init.Extensions = "order 7", map[string]any{wire.TagsAttribute: "tenant=acme"}
	b.h.Suspended(b.h.Send("payer", init), 2)
	contains(t, b.get(http.StatusOK, "/runs/order%207"), `<span class="tag">tenant=acme</span>`, `<a href="/runs?q=parent%3A%22order`)
	contains(t, b.get(http.StatusOK, "/runs?q=parent%3A%22order+7%22"), "No run matches")
}

// The run that used most tokens comes first where they are sorted so.
func TestRuns_AreSortedAsTheAddressSays(t *testing.T) {
	b := openWith(t, asking, live.Options{Who: setup.Principal{Who: "anna"}})
	b.begin("one")
	page := b.get(http.StatusOK, "/runs?sort=tokens")
	contains(t, page, "those that used most tokens first", `<a href="/runs?sort=tokens" aria-current="true">Most tokens</a>`)
	page = b.get(http.StatusOK, "/runs?sort=duration")
	contains(t, page, "those that took longest first", `<a href="/runs?sort=duration" aria-current="true">Took longest</a>`, "/runs/one")
	contains(t, b.get(http.StatusOK, "/runs"), "those that changed last first", `<a href="/runs" aria-current="true">All</a>`)
}

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk/wire"
)

// role is a column of the table of attacks: a user with what the role is for. Gateways and other front ends are clients.
type role struct {
	// letter is in the rows that the role may use.
	letter, title, user string
}

var roles = []role{
	{"C", "client", "shop"},
	{"P", "person", "ann"},
	{"A", "approver", "jane"},
	{"F", "approver of finance", "joe"},
	{"S", "service", "svc_local_weather_forecast"},
	{"X", "foreign program", "guest"},
	{"W", "worker", "worker"},
	{"O", "operator", "operator"},
}

// trusted roles share the account of the streams. What they may use is not tried: it would change what others are tried with.
const trusted = "WO"

// row is what somebody tries. May has the letters of the roles that may, by design; all others the server refuses, except a
// program in an account of its own without imports, whom nobody hears.
type row struct {
	what string
	// subject has SELF for the name of the user.
	subject, may string
}

// published are subjects that roles try to publish on, and heard those that they try to subscribe to, while a run waits for a decision.
func (v victim) published() []row {
	const api = "$JS.API."
	run := v.agent + "." + v.key
	asked, call := run+"."+v.asked, run+"."+v.call
	people := "agentd.in.human_interaction."
	return []row{
		{"start a run as itself", "agentd.start.clerk.SELF", "CPO"},
		{"start a run as nobody", "agentd.start.clerk", "O"},
		{"start a run as bob", "agentd.start.clerk.bob", "O"},
		{"tell a run something as itself", "agentd.ctl.message." + run + ".SELF", "CPO"},
		{"tell a run something as bob", "agentd.ctl.message." + run + ".bob", "O"},
		{"cancel a run as itself", "agentd.ctl.cancel." + run + ".SELF", "CPO"},
		{"cancel a run as bob", "agentd.ctl.cancel." + run + ".bob", "O"},
		{"cancel a run as nobody", "agentd.ctl.cancel." + run, "O"},
		{"cancel a call as itself", "agentd.ctl.cancel_call." + run + ".SELF", "CPO"},
		{"cancel a call as bob", "agentd.ctl.cancel_call." + run + ".bob", "O"},
		{"pause a run", "agentd.ctl.pause." + run, "O"},
		{"pause a run as itself", "agentd.ctl.pause." + run + ".SELF", "O"},
		{"resume a run as itself", "agentd.ctl.resume." + run + ".SELF", "O"},
		{"retry a run as itself", "agentd.ctl.retry." + run + ".SELF", "O"},
		{"undo a run as itself", "agentd.ctl.undo." + run + ".SELF", "O"},
		{"unpark a run", "agentd.ctl.unpark." + run, "WO"},
		{"unpark a run as itself", "agentd.ctl.unpark." + run + ".SELF", "O"},
		{"ask about its runs", "agentd.get.clerk.SELF", "CPAFO"},
		{"ask about bob's runs", "agentd.get.clerk.bob", "O"},
		{"ask about all runs", "agentd.get.clerk", "PAFO"},
		{"end a run", "agentd.done." + run + ".x", "WO"},
		{"read the ends of runs", api + "DIRECT.GET.AGENTD_DONE.agentd.done.clerk.>", "CPO"},
		{"read the ends of others' runs", api + "DIRECT.GET.AGENTD_DONE.agentd.done.>", "O"},
		{"tell live what a run does", "agentd.stream." + run, "WO"},
		{"have a run told live", "agentd.watch." + run, "CPAFO"},
		{"have the runs of its agent told live", "agentd.watch.clerk.all.all", "CPAFO"},
		{"have the runs of another agent told live", "agentd.watch.other.all.all", "O"},
		{"have all runs told live", "agentd.watch.all.all.all", "O"},
		{"ask who watches", "agentd.watch.ask", "WO"},
		{"wake the driver of a run", "agentd.wake." + run, "WO"},
		{"arm a timer", "agentd.tmr." + run, "WO"},
		{"fire a timer", "agentd.fire." + run, "WO"},
		{"take a lease", "agentd.tmr.lease.agent.clerk", "WO"},
		{"write a journal", "agentd.run." + v.key, "WO"},
		{"write a blob of a journal", "agentd.blob." + v.key + ".x", "WO"},
		{"read a journal", api + "DIRECT.GET.AGENTD_RUN.agentd.run." + v.key, "WO"},
		{"read all journals", api + "STREAM.MSG.GET.AGENTD_RUN", "WO"},

		{"call a service", "agentd.out.local.bank_pay." + call, "WO"},
		{"call as another agent", "agentd.out.local.bank_pay.other." + v.key + ".c", "O"},
		{"take a call back", "agentd.void.local.bank_pay." + call, "WO"},
		{"answer another service's call", "agentd.in.local.bank_pay." + call, "O"},
		{"answer its own type's call", "agentd.in.local.weather_forecast." + call, "SO"},
		{"answer it under a person's name", "agentd.in.local.weather_forecast." + call + ".jane", "O"},
		{"take another service's calls", api + "CONSUMER.MSG.NEXT.AGENTD_OUT.svc_local_bank_pay", "O"},
		{"take its own type's calls", api + "CONSUMER.MSG.NEXT.AGENTD_OUT.svc_local_weather_forecast", "SO"},
		{"look at another's consumer", api + "CONSUMER.INFO.AGENTD_OUT.svc_local_bank_pay", "WO"},
		{"take what is for an agent", api + "CONSUMER.MSG.NEXT.AGENTD_IN.agent_clerk", "WO"},
		{"acknowledge another service's call", "$JS.ACK.AGENTD_OUT.svc_local_bank_pay.1.1.1.1.0", "O"},
		{"acknowledge what is for an agent", "$JS.ACK.AGENTD_START.agent_clerk.1.1.1.1.0", "WO"},
		{"acknowledge its own call", "$JS.ACK.AGENTD_OUT.svc_local_weather_forecast.1.1.1.1.0", "SO"},
		{"publish another's contract", "$KV.AGENTD_CONTRACTS.bank_pay.1_0_0", "O"},
		{"publish its own contract", "$KV.AGENTD_CONTRACTS.weather_forecast.9_0_0", "SO"},
		{"answer for another's contract", "agentd.contract.bank_pay", "O"},
		{"read calls by sequence", api + "STREAM.MSG.GET.AGENTD_OUT", "WO"},
		{"read answers by sequence", api + "STREAM.MSG.GET.AGENTD_IN", "SWO"},
		{"put a dead letter of a call", "agentd.dlq.invalid_event.agentd_out.77", "WO"},
		{"put a dead letter of its own type's call", "agentd.dlq.invalid_event.agentd_out.77.local.weather_forecast", "SWO"},
		{"put a dead letter of another service's call", "agentd.dlq.invalid_event.agentd_out.77.local.bank_pay", "WO"},
		{"put a dead letter of an answer", "agentd.dlq.conflict.agentd_in.9", "WO"},
		{"read dead letters by sequence", api + "STREAM.MSG.GET.AGENTD_DLQ", "SWO"},

		{"decide as itself", people + "agentd_permission_request." + asked + ".SELF", "A"},
		{"decide as bob", people + "agentd_permission_request." + asked + ".bob", ""},
		{"decide as nobody", people + "agentd_permission_request." + asked, ""},
		{"decide in finance", "agentd.in.finance.agentd_permission_request." + asked + ".SELF", "F"},
		{"approve a plan as itself", people + "agentd_plan_review." + asked + ".SELF", "A"},
		{"approve a plan as bob", people + "agentd_plan_review." + asked + ".bob", ""},
		{"approve a plan as nobody", people + "agentd_plan_review." + asked, ""},
		{"answer a question as itself", people + "agentd_question_ask." + asked + ".SELF", "PAO"},
		{"answer a question as bob", people + "agentd_question_ask." + asked + ".bob", "O"},
		{"answer a question as nobody", people + "agentd_question_ask." + asked, "O"},
		{"grant something for ever", "$KV.AGENTD_GRANTS.bob.clerk.pay", "WO"},
		{"read what people are asked", "agentd.read.AGENTD_OUT.agentd.*.human_interaction.>", "AO"},
		{"read what services are asked", "agentd.read.AGENTD_OUT.agentd.*.local.>", "O"},
		{"read what all are asked", "agentd.read.AGENTD_OUT.agentd.>", "O"},
		{"read all answers", "agentd.read.AGENTD_IN.agentd.in.>", "O"},
		{"have journals read", "agentd.read.AGENTD_RUN.agentd.run.>", "O"},
		{"read a request of people", api + "DIRECT.GET.AGENTD_OUT.agentd.out.human_interaction.>", "AO"},
		{"read a call of a service", api + "DIRECT.GET.AGENTD_OUT.agentd.out.local.>", "O"},

		{"make a stream", api + "STREAM.CREATE.MINE", "O"},
		{"change a stream", api + "STREAM.UPDATE.AGENTD_IN", "O"},
		{"delete a stream", api + "STREAM.DELETE.AGENTD_RUN", "O"},
		{"purge journals", api + "STREAM.PURGE.AGENTD_RUN", "WO"},
		{"purge calls", api + "STREAM.PURGE.AGENTD_OUT", "WO"},
		{"write an archive of a journal", "agentd.cold." + v.key, "WO"},
		{"read archives of journals", api + "STREAM.MSG.GET.AGENTD_COLD", "WO"},
		{"purge archives of journals", api + "STREAM.PURGE.AGENTD_COLD", "WO"},
		{"purge timers", api + "STREAM.PURGE.AGENTD_TMR", "WO"},
		{"purge answers", api + "STREAM.PURGE.AGENTD_IN", "O"},
		{"purge init events", api + "STREAM.PURGE.AGENTD_START", "O"},
		{"purge terminal events", api + "STREAM.PURGE.AGENTD_DONE", "O"},
		{"purge dead letters", api + "STREAM.PURGE.AGENTD_DLQ", "O"},
		{"list who reads calls", api + "CONSUMER.LIST.AGENTD_OUT", "WO"},
		{"set an agent's consumer of calls back", api + "CONSUMER.RESET.AGENTD_OUT.agent_clerk", "WO"},
		{"set an agent's consumer of answers back", api + "CONSUMER.RESET.AGENTD_IN.agent_clerk", "O"},
		{"change a bulk job", "$KV.AGENTD_BULK.job", "O"},
		{"read bulk jobs", api + "DIRECT.GET.KV_AGENTD_BULK.$KV.AGENTD_BULK.>", "O"},
		{"ask whoever has the index of runs", "agentd.idx.query", "O"},
		{"delete a message", api + "STREAM.MSG.DELETE.AGENTD_IN", "O"},
		{"take a snapshot of a stream", api + "STREAM.SNAPSHOT.AGENTD_RUN", "O"},
		{"restore a stream", api + "STREAM.RESTORE.AGENTD_RUN", "O"},
		{"list streams", api + "STREAM.NAMES", "O"},
		{"make a leader step down", api + "STREAM.LEADER.STEPDOWN.AGENTD_RUN", "O"},
		{"take a server out of a stream", api + "STREAM.PEER.REMOVE.AGENTD_RUN", "O"},
		{"ask for the account's use", api + "INFO", "O"},
		{"purge the account", api + "ACCOUNT.PURGE.AGENTD", "O"},
		{"make a consumer", api + "CONSUMER.CREATE.AGENTD_OUT", "O"},
		{"make a consumer with a name", api + "CONSUMER.CREATE.AGENTD_OUT.mine", "O"},
		{"make a consumer with a filter", api + "CONSUMER.CREATE.AGENTD_DONE.mine.agentd.done.clerk.>", "O"},
		{"make a consumer of what starts runs", api + "CONSUMER.CREATE.AGENTD_START.mine.agentd.start.clerk", "WO"},
		{"make a durable consumer", api + "CONSUMER.DURABLE.CREATE.AGENTD_OUT.mine", "O"},
		{"make a service's consumer anew", api + "CONSUMER.CREATE.AGENTD_OUT.svc_local_weather_forecast.agentd.out.>", "O"},
		{"delete a service's consumer", api + "CONSUMER.DELETE.AGENTD_OUT.svc_local_bank_pay", "O"},
		{"delete its own consumer", api + "CONSUMER.DELETE.AGENTD_OUT.svc_local_weather_forecast", "O"},
		{"delete an agent's consumer", api + "CONSUMER.DELETE.AGENTD_START.agent_clerk", "O"},
		{"pause an agent's consumer", api + "CONSUMER.PAUSE.AGENTD_START.agent_clerk", "O"},
		{"set a consumer back", api + "CONSUMER.RESET.AGENTD_OUT.svc_local_weather_forecast", "O"},
		{"discover services", "$SRV.PING", "O"},
		{"ask the server's own account", "$SYS.REQ.SERVER.PING", ""},
		{"ask who it is", "$SYS.REQ.USER.INFO", "CPAFSWO"},
		{"guess a cluster's log", "$NRG.V.AGENTD", ""},
		{"guess a flow control", "$JS.FC.AGENTD_OUT.mine.1", ""},
		{"guess where a reply is awaited", "_R_.aaaaaa.bbbbbb", "SW"},
		{"write into bob's inbox", "_INBOX_agentd_bob.heard", ""},
		{"write into the worker's inbox", "_INBOX_agentd_worker.heard", ""},
	}
}

func (v victim) heard() []row {
	return []row{
		{"hear everything", ">", ""},
		{"hear all of agentd", "agentd.>", "O"},
		{"hear init events", "agentd.start.>", "O"},
		{"hear calls", "agentd.out.>", "O"},
		{"hear answers", "agentd.in.>", "O"},
		{"hear what becomes of decisions", "agentd.in.human_interaction.>", "AO"},
		{"hear journals", "agentd.run.>", "O"},
		{"hear archives of journals", "agentd.cold.>", "O"},
		{"hear live events", "agentd.stream.clerk.>", "CPAFO"},
		{"hear who watches", "agentd.watch.>", "WO"},
		{"hear that a worker asks who watches", "agentd.watch.ask", "CPAFWO"},
		{"hear the ends of runs", "agentd.done.clerk.>", "CPO"},
		{"hear what is taken back from others", "agentd.void.local.bank_pay.>", "O"},
		{"answer for workers", "agentd.get.clerk", "WO"},
		{"answer reads for workers", "agentd.read.>", "WO"},
		{"answer for another service", "agentd.contract.bank_pay", "O"},
		{"hear replies of others", "_INBOX.>", ""},
		{"hear replies of bob", "_INBOX_agentd_bob.>", ""},
		{"hear replies of the worker", "_INBOX_agentd_worker.>", "W"},
		{"hear replies that cross accounts", "_R_.>", ""},
		{"hear acknowledgements", "$JS.ACK.>", ""},
		{"hear requests of the API", "$JS.API.>", ""},
		{"hear changes of the registry", "$KV.>", ""},
		{"hear advisories", "$JS.EVENT.ADVISORY.>", "O"},
		{"hear the server's own account", "$SYS.>", ""},
	}
}

// headers are instructions to the server that a publisher may try on what it may publish.
func (v victim) headers() []nats.Header {
	decision := "agentd.in.human_interaction.agentd_permission_request." + v.agent + "." + v.key + "." + v.asked + ".jane"
	return []nats.Header{
		{"Nats-Rollup": {"all"}},
		{"Nats-Rollup": {"sub"}},
		{"Nats-TTL": {"1s"}},
		{"Nats-Msg-Id": {v.asked}},
		{"Nats-Expected-Stream": {"CANARY"}},
		{"Nats-Expected-Last-Sequence": {"0"}},
		{"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"agentd.>"}},
		{"Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {decision}},
		{"Nats-Schedule": {"@at 2020-01-01T00:00:00Z"}, "Nats-Schedule-Target": {"agentd.fire." + v.agent + "." + v.key}},
		{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"}},
		{"Nats-Incr": {"1"}},
		{"Nats-Trace-Dest": {decision}},
		{"Nats-Trace-Dest": {"$JS.API.STREAM.DELETE.CANARY"}, "Nats-Trace-Only": {"true"}},
		{"Nats-Stream-Source": {"AGENTD_RUN 1 > > agentd.run." + v.key}},
		{"KV-Operation": {"PURGE"}, "Nats-Rollup": {"sub"}, "Nats-Marker-Reason": {"Purge"}},
		{"Nats-Required-Api-Level": {"0"}, "Nats-Subject": {decision}},
	}
}

// The verdicts on an attack.
const (
	refused  = "refused"
	byDesign = "by design"
	unheard  = "unheard" // of who is in an account of its own, which imports nothing
	untried  = "may"     // of those who are trusted
)

// expect is the verdict that a row says.
func (r row) expect(of role) string {
	switch may := strings.Contains(r.may, of.letter); {
	case of.letter == "X":
		return unheard
	case may && strings.Contains(trusted, of.letter):
		return untried
	case may:
		return byDesign
	}
	return refused
}

// attempts makes all attempts of the table as one role and returns what the server said to each.
func (g *guarded) attempts(v victim, of role) (published, heard []string) {
	g.t.Helper()
	told := make(chan string, 1024)
	nc, err := nats.Connect(g.url(of.user), nats.CustomInboxPrefix("_INBOX_agentd_"+of.user),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- strings.ToLower(err.Error()) }))
	if err != nil {
		g.t.Fatal(err)
	}
	defer nc.Close()
	try := func(r row, kind string, do func(subject string) error) string {
		subject := strings.ReplaceAll(v.inPartition(r.subject), "SELF", of.user)
		if r.expect(of) == untried {
			return untried
		}
		if of.letter == "X" {
			if err := do(subject); err != nil || nc.FlushTimeout(wait) != nil {
				g.t.Fatal(err)
			}
			return unheard
		}
		// Refusals come in order: when this one has come, so has that of the attempt.
		const last = "nobody.may"
		if err := do(subject); err != nil || nc.Publish(last, nil) != nil || nc.FlushTimeout(wait) != nil {
			g.t.Fatal(err)
		}
		verdict := byDesign
		for text := <-told; !strings.Contains(text, last); text = <-told {
			if strings.Contains(text, "permissions violation for "+kind+` to "`+strings.ToLower(subject)+`"`) {
				verdict = refused
			}
		}
		return verdict
	}
	for _, r := range v.published() {
		published = append(published, try(r, "publish", func(subject string) error { return nc.Publish(subject, []byte(`{}`)) }))
	}
	for _, r := range v.heard() {
		heard = append(heard, try(r, "subscription", func(subject string) error {
			_, err := nc.Subscribe(subject, func(*nats.Msg) {})
			return err
		}))
	}
	return published, heard
}

// instruct publishes with all instructions to the server on everything that an untrusted role may publish on.
func (g *guarded) instruct(v victim, of role) {
	g.t.Helper()
	nc, _ := g.connect(of.user)
	defer nc.Close()
	for _, r := range v.published() {
		if r.expect(of) != byDesign && r.expect(of) != unheard {
			continue
		}
		for _, h := range v.headers() {
			m := &nats.Msg{Subject: strings.ReplaceAll(v.inPartition(r.subject), "SELF", of.user), Reply: nc.NewInbox(), Header: h, Data: []byte(`{}`)}
			if err := nc.PublishMsg(m); err != nil {
				g.t.Fatal(err)
			}
		}
	}
	if err := nc.FlushTimeout(wait); err != nil {
		g.t.Fatal(err)
	}
}

// The table of docs/security.md, attack by attack and role by role: what the server says at once, and that nothing was deleted,
// stored or heard that is not the role's own, neither at once nor when the server has started again.
func TestNATSConfig_AttackTable(t *testing.T) {
	var each [][]role
	for _, of := range roles {
		each = append(each, []role{of})
	}
	t.Run("one server", func(t *testing.T) { attackTable(t, 1, 1, each) })
	t.Run("four partitions", func(t *testing.T) { attackTable(t, 1, 4, [][]role{roles}) })
	t.Run("three servers", func(t *testing.T) { attackTable(t, 3, 1, [][]role{roles}) }) // which take long to start again
}

// attackTable has groups of roles attack, and starts the servers again after each group.
func attackTable(t *testing.T, members, partitions int, groups [][]role) {
	t.Setenv("AGENTD_JOE_PASSWORD", "secret-of-joe")
	t.Setenv("AGENTD_PARTITIONS", strconv.Itoa(partitions))
	g := newGuardedBy(t, members, "", unchanged, "--approver", "joe=finance")
	for i := range members {
		config, err := os.ReadFile(g.serverFile(i))
		if err != nil {
			t.Fatal(err)
		}
		write(t, g.serverFile(i), strings.Replace(string(config), "accounts {", "accounts { FOREIGN { users = [{user: guest, password: secret-of-guest}] }", 1))
	}
	g.restart()
	g.work()
	g.as("bob", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	d := g.detail("one")
	v := victim{"clerk", "bank_pay", wire.NewRunKey("one").String(), d.ID, d.Request.Call, partitions}
	for _, user := range []string{"", "nobody:x@", "shop:wrong@"} {
		if nc, err := nats.Connect("nats://" + user + g.address); err == nil {
			nc.Close()
			t.Errorf("the server takes %q", user)
		}
	}
	var columns [][]string
	for _, group := range groups {
		var users []string
		for _, of := range group {
			users = append(users, of.user)
		}
		g.endures(v, []string{"bob"}, users, func() {
			for _, of := range group {
				published, heard := g.attempts(v, of)
				columns = append(columns, append(published, heard...))
				if !strings.Contains(trusted, of.letter) {
					g.strike(v, of.user)
					g.instruct(v, of)
				}
			}
		})
	}
	printTable(t, append(v.published(), v.heard()...), columns)

	// Nothing of it stops the run.
	g.serve(func() {})
	g.eventually("the worker has come back to the servers", func() bool {
		code, _, _ := g.agentd("approvals", "list", "--nats", g.url("jane"))
		return code == cli.ExitOK
	})
	g.as("jane", "approvals", "approve", d.Short)
	g.answer("one", "Current")
	g.ended("bob", "one")
	contains(t, g.as("operator", "runs", "show", "one"), "completed")
}

// printTable prints what became of the attacks, and reports what is not as it must be.
func printTable(t *testing.T, rows []row, columns [][]string) {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "who tries to …\ton")
	for _, of := range roles {
		fmt.Fprintf(w, "\t%s", of.title)
	}
	for i, r := range rows {
		fmt.Fprintf(w, "\n%s\t%s", r.what, r.subject)
		for j, of := range roles {
			got := columns[j][i]
			fmt.Fprintf(w, "\t%s", got)
			if want := r.expect(of); got != want {
				t.Errorf("%s (%s), as the %s: %s, want %s", r.what, r.subject, of.title, got, want)
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
}

// A service may write dead letters of calls. What such a letter says of where it came from is the service's word: an operator
// who publishes it again must not thereby start, answer or cancel anything.
func TestNATSConfig_AForgedDeadLetterIsNotRedriven(t *testing.T) {
	g := startGuarded(t, "")
	g.as("bob", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	d := g.detail("one")
	run := "clerk." + wire.NewRunKey("one").String()
	forged := []struct{ subject, data string }{
		{"agentd.start.clerk.bob", `{"specversion":"1.0","id":"i","source":"s","type":"clerk","subject":"forged","data":{"message":"Pay"}}`},
		{"agentd.ctl.cancel." + run + ".bob", `{"specversion":"1.0","id":"c","source":"s","type":"` + wire.TypeCancel + `","subject":"one","data":{}}`},
		{
			"agentd.in.human_interaction.agentd_question_ask." + run + "." + strings.Replace(d.Request.Call, "c1-0", "c1-1", 1) + ".ann",
			`{"specversion":"1.0","id":"a","source":"s","type":"agentd.question.answered","data":{"answer":"Other"}}`,
		},
	}
	nc, _ := g.connect("svc_local_weather_forecast")
	for i, f := range forged {
		m := &nats.Msg{Subject: fmt.Sprintf("agentd.dlq.invalid_event.agentd_out.%d.local.weather_forecast", 70+i), Data: []byte(f.data), Header: nats.Header{
			"agentd-reason": {"invalid_event"}, "agentd-detail": {"please redrive"}, "agentd-subject": {f.subject},
		}}
		if _, err := nc.RequestMsg(m, wait); err != nil {
			t.Fatal(err)
		}
	}
	var letters []struct {
		Sequence uint64 `json:"seq"`
	}
	if err := json.Unmarshal([]byte(g.as("operator", "dlq", "list", "-o", "json")), &letters); err != nil || len(letters) != len(forged) {
		t.Fatalf("%v: %v", letters, err)
	}
	for _, l := range letters {
		_, problem := g.expect(cli.ExitFailure, "dlq", "redrive", fmt.Sprint(l.Sequence), "--nats", g.url("operator"))
		contains(t, problem, "is not a subject of AGENTD_OUT")
	}
	if runs := g.as("operator", "runs", "list"); strings.Contains(runs, "forged") || !strings.Contains(runs, "waiting") {
		t.Errorf("a forged letter had an effect:\n%s", runs)
	}
	if diff := cmp.Diff(map[string]uint64{"agentd.start.clerk.bob": 1}, g.on("AGENTD_START", "agentd.start.>")); diff != "" {
		t.Errorf("init events (-want +got):\n%s", diff)
	}
}

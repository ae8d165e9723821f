package desk

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// delivery is that of an event, or without data of a call's void.
type delivery struct {
	broker.Delivery
	stream   string
	subject  string
	sequence uint64
	received int64
	data     string
	header   map[string]string
}

func (d delivery) Stream() string               { return d.stream }
func (d delivery) Subject() string              { return d.subject }
func (d delivery) Sequence() uint64             { return d.sequence }
func (d delivery) Received() int64              { return d.received }
func (d delivery) Header(name string) string    { return d.header[name] }
func (d delivery) Headers() map[string][]string { return nil }
func (d delivery) Data() []byte                 { return []byte(d.data) }

var request = wire.CallAddress{
	Domain: "the_boss", Type: "agentd_permission_request", Agent: "clerk", Run: wire.NewRunKey("one"), Call: "c1-0-x",
}

// A desk whose connection is closed reads nothing any more, and does not go on trying.
func TestReadAnew_EndsWithItsConnection(t *testing.T) {
	t.Parallel()
	conn := brokertest.Connect(t, broker.ConnectOptions{InProcess: brokertest.Server(t, embedded.Options{})})
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	d := &Desk{o: Options{Conn: conn, Domains: []string{sdk.HumanDomain}, Logger: slog.New(slog.DiscardHandler)}, now: time.Now}
	if _, err := d.readAnew(ctx); !broker.Closed(err) {
		t.Errorf("it ended with %v", err)
	}
}

// Domains are read side by side: that one has been read far says nothing of another. Whoever took it for that would think that
// a request which the desk has not seen yet is not open any more.
func TestRead_IsOfOneDomain(t *testing.T) {
	t.Parallel()
	d := &Desk{inbox: newInbox(wire.DefaultSubjects(), time.Now)}
	subject := wire.DefaultSubjects().Void(request)
	if err := d.inbox.called(delivery{subject: subject, sequence: 10, received: 100}); err != nil {
		t.Fatal(err)
	}
	for domain, want := range map[string]bool{"the_boss": true, "human_interaction": false} {
		if got := d.Read(domain, delivery{sequence: 5, received: 90}); got != want {
			t.Errorf("the domain %s has been read up to 5: %t; want %t", domain, got, want)
		}
	}
	if d.Read("the_boss", delivery{sequence: 5, received: 101}) {
		t.Error("a message that is younger than all that were read counts as read")
	}
}

// The streams that calls are divided into count by themselves: that one was read far says nothing of another, and one that was read less far
// leaves nothing unread of it.
func TestRead_IsOfOneStream(t *testing.T) {
	t.Parallel()
	d := &Desk{inbox: newInbox(wire.DefaultSubjects(), time.Now)}
	subject := wire.DefaultSubjects().Void(request)
	for _, read := range []delivery{
		{stream: "AGENTD_OUT_1", subject: subject, sequence: 10, received: 100}, {stream: "AGENTD_OUT_2", subject: subject, sequence: 3, received: 101},
	} {
		if err := d.inbox.called(read); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		stream   string
		sequence uint64
		want     bool
	}{{"AGENTD_OUT_1", 10, true}, {"AGENTD_OUT_1", 11, false}, {"AGENTD_OUT_2", 3, true}, {"AGENTD_OUT_2", 4, false}, {"AGENTD_OUT_3", 1, false}} {
		if got := d.Read("the_boss", delivery{stream: c.stream, sequence: c.sequence, received: 90}); got != c.want {
			t.Errorf("%s has been read up to %d: %t; want %t", c.stream, c.sequence, got, c.want)
		}
	}
}

// The streams of calls and of answers are read side by side: whichever comes first, it is told who decided.
func TestInbox_TellsOfDecisionsThatAreReadLate(t *testing.T) {
	t.Parallel()
	subjects := wire.DefaultSubjects()
	asks := delivery{subject: subjects.Call(request), sequence: 1, received: 1, data: `{"specversion": "1.0", "id": "c1-0-x", "source": "agentd:/agent/clerk",
		"type": "agentd.permission.request", "subject": "one", "domain": "the_boss", "data": {"tool": "pay", "args": {}}}`}
	closes := delivery{subject: subjects.Void(request), sequence: 2, received: 2}
	decides := delivery{subject: subjects.Reply(request) + ".anna", sequence: 1, received: 2, data: `{"specversion": "1.0", "id": "d", "source": "desk",
		"type": "agentd.permission.decided", "subject": "one", "data": {"decision": "allow"}}`}
	for name, steps := range map[string][]string{
		"added decided removed":         {"asks", "decides", "closes"},
		"added removed decided":         {"asks", "closes", "decides"},
		"added removed decided decided": {"asks", "closes", "decides", "decides"},
	} {
		b := newInbox(subjects, time.Now)
		for _, step := range steps {
			var err error
			switch step {
			case "asks":
				err = b.called(asks)
			case "closes":
				err = b.called(closes)
			case "decides":
				err = b.answered(decides)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var told []string
		for _, c := range b.changes {
			told = append(told, string(c.Kind))
			if c.Kind == requests.ChangeDecided && c.Item.Sent[len(c.Item.Sent)-1].Who != "anna" {
				t.Errorf("who decided is told as %+v, want anna", c.Item.Sent)
			}
		}
		if got := strings.Join(told, " "); got != name {
			t.Errorf("after %v it is told: %s; want %s", steps, got, name)
		}
	}
}

// Of a request that there was no room for, nobody says that it is not open: a webhook would never be told of it.
func TestFind_OfWhatIsTooMuchToBeKept(t *testing.T) {
	t.Parallel()
	subjects := wire.DefaultSubjects()
	b := newInbox(subjects, time.Now)
	b.most = 1
	first, second := request, request
	first.Call, second.Call = "c1-0-x", "c2-0-y"
	for n, call := range []wire.CallAddress{first, second} {
		asks := delivery{subject: subjects.Call(call), sequence: uint64(n + 1), received: 1, data: `{"specversion": "1.0", "id": "` + call.Call + `", "source": "agentd:/agent/clerk",
			"type": "agentd.permission.request", "subject": "one", "domain": "the_boss", "data": {"tool": "pay", "args": {}}}`}
		if err := b.called(asks); err != nil {
			t.Fatal(err)
		}
	}
	is := func(when, call string, want sdk.Code) {
		t.Helper()
		if _, err := b.find(call); !errors.Is(err, &sdk.Error{Code: want}) {
			t.Errorf("%s: %s: %v, want %s", when, call, err, want)
		}
	}
	if _, err := b.find(first.Call); err != nil {
		t.Error(err)
	}
	is("while the other is open", second.Call, sdk.CodeUnavailable)
	if err := b.called(delivery{subject: subjects.Void(first), sequence: 3, received: 2}); err != nil {
		t.Fatal(err)
	}
	is("after the other is closed", second.Call, sdk.CodeUnavailable)
	is("after it is closed", first.Call, sdk.CodeUnknownRun)
}

// A result is of one call: the run would refuse one for others as well.
func TestCheckDecision_AResultIsOfOneCall(t *testing.T) {
	t.Parallel()
	r := &sdk.PermissionRequest{Results: true, Mode: sdk.PermissionHold, Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}}
	p := sdk.PermissionDecision{Decision: sdk.DecisionResult, Result: json.RawMessage(`{}`), Scope: sdk.ScopeTool}
	if _, err := checkDecision(r, p, 1); !errors.Is(err, &sdk.Error{Code: sdk.CodeDecisionRefused}) {
		t.Errorf("with the scope %s: %v", p.Scope, err)
	}
	p.Scope = sdk.ScopeCall
	if _, err := checkDecision(r, p, 1); err != nil {
		t.Error(err)
	}
}

// An approver may leave out what the model may.
func TestCheckEdit_FillsInDefaults(t *testing.T) {
	t.Parallel()
	r := &sdk.PermissionRequest{
		Tool: "pay", Mode: sdk.PermissionHold,
		Parameters: json.RawMessage(`{"type":"object","properties":{"sum":{"type":"integer"},"in":{"type":"string","default":"EUR"}},"required":["sum","in"]}`),
	}
	p, err := CheckEdit(r, json.RawMessage(`{ "sum": 4 }`))
	if err != nil || string(p.Args) != `{"in":"EUR","sum":4}` {
		t.Errorf("the arguments are %s, %v", p.Args, err)
	}
	if _, err := CheckEdit(r, json.RawMessage(`{"in":"EUR"}`)); !errors.Is(err, &sdk.Error{Code: sdk.CodeContractViolation}) {
		t.Errorf("without what has no default: %v", err)
	}
}

// The streams of calls, of answers and of dead letters are read side by side: in whichever order, a question whose answer could not be used
// is open, and tells why.
func TestInbox_KeepsQuestionsWhoseAnswerCouldNotBeUsed(t *testing.T) {
	t.Parallel()
	subjects := wire.DefaultSubjects()
	question := request
	question.Type = "agentd_question_ask"
	const five = `{"specversion": "1.0", "id": "a", "source": "desk", "type": "agentd.question.answered", "subject": "one", "data": {"answer": 5}}`
	reply := subjects.Reply(question) + ".anna"
	steps := map[string]func(*inbox) error{
		"asks": func(b *inbox) error {
			return b.called(delivery{subject: subjects.Call(question), sequence: 1, received: 1, data: `{"specversion": "1.0", "id": "c1-0-x",
				"source": "agentd:/agent/clerk", "type": "agentd.question.ask", "subject": "one", "domain": "the_boss", "data": {"question": "Which?"}}`})
		},
		"answers": func(b *inbox) error {
			return b.answered(delivery{subject: reply, sequence: 7, received: 2, data: five})
		},
		"refuses": func(b *inbox) error {
			return b.rejected(delivery{subject: "agentd.dlq.clerk.7", sequence: 1, received: 3, data: five, header: map[string]string{
				headerReason: "contract_violation", headerDetail: "want text", headerSubject: reply,
			}})
		},
	}
	for _, order := range []string{
		"asks answers refuses", "asks refuses answers", "answers asks refuses", "answers refuses asks", "refuses asks answers", "refuses answers asks",
	} {
		b := newInbox(subjects, time.Now)
		for step := range strings.FieldsSeq(order) {
			if err := steps[step](b); err != nil {
				t.Fatal(err)
			}
		}
		open := b.list()
		if len(open) != 1 || len(open[0].Sent) != 1 || open[0].Sent[0].Who != "anna" || open[0].Sent[0].Refused != "want text" {
			t.Errorf("after %s what is open is %+v; want the question, with the answer and why it was refused", order, open)
		}
	}
}

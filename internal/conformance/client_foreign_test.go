package conformance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// foreignClient starts and follows runs with a NATS client alone, as docs/wire.md describes it, but for a defect.
type foreignClient struct {
	defect string
	nc     *nats.Conn
	who    string
	made   int
}

func (f *foreignClient) has(defect string) bool { return f.defect == defect }

func (f *foreignClient) serve(ctx context.Context) error {
	if f.has("mute-client") {
		<-ctx.Done()
		return nil
	}
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond)}
	if f.has("no-reconnect-client") {
		options = []nats.Option{nats.NoReconnect()}
	}
	if f.who = os.Getenv("NATS_USER"); f.has("nobody") {
		f.who = ""
	}
	var err error
	if f.nc, err = nats.Connect(os.Getenv("NATS_URL"), options...); err != nil {
		return err
	}
	defer f.nc.Close()
	return takeRequests(ctx, f)
}

// unless is a value, or another of a client with a defect.
func unless[T any](f *foreignClient, defect string, value, other T) T {
	if f.has(defect) {
		return other
	}
	return value
}

func (f *foreignClient) do(ctx context.Context, r request, tell func(any)) (any, error) {
	switch r.Do {
	case "start":
		return f.start(r)
	case "wait":
		return f.wait(ctx, r.Run)
	case "follow":
		return f.follow(ctx, r, tell)
	case "status":
		var status map[string]any
		err := f.get(r.Run.Agent, map[string]any{
			"run": unless(f, "asks-by-key", r.Run.Name, r.Run.key().String()), "after": wire.Mark{Revision: 1 << 62},
		}, &status)
		return map[string]any{"status": status}, err
	case "list":
		return f.list(r)
	case "send":
		return done, f.control("message", r.Run, map[string]string{"message": r.Text})
	case "cancel":
		return done, f.cancel(r)
	}
	return f.reply(r)
}

// address are the tokens of a run in subjects.
func (f *foreignClient) address(run *runName) string {
	key := run.key().String()
	if f.has("plain-names") {
		key = strings.NewReplacer(" ", "_", "/", "_").Replace(run.Name)
	}
	return wire.NameToken(run.Agent) + "." + key
}

func (f *foreignClient) named(subject string) string {
	if f.who != "" {
		return subject + "." + f.who
	}
	return subject
}

func (f *foreignClient) event(id, kind, subject string, data any) map[string]any {
	return map[string]any{"specversion": "1.0", "id": id, "source": "foreign", "type": kind, "subject": subject, "data": data}
}

// store publishes to a stream until it has said that it has the event.
func (f *foreignClient) store(subject string, event map[string]any) error {
	body, err := json.Marshal(event)
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{"Content-Type": {wire.ContentTypeStructured}}}
	if f.has("headerless") {
		m.Header = nil
	}
	if f.has("forgets") {
		return f.nc.PublishMsg(m)
	}
	js, err := jetstream.New(f.nc)
	if err != nil {
		return err
	}
	for range 20 { // while no stream answers, the library waits between its tries; while no server does, until the try is over
		if err = f.try(js, m); err == nil {
			return nil
		}
		if errors.Is(err, nats.ErrMaxPayload) {
			return sdk.Errorf(unless(f, "own-codes", sdk.CodeTooLarge, "EIO"), "%s is not stored: %s", subject, err)
		}
	}
	return sdk.Errorf(unless(f, "own-codes", sdk.CodeUnavailable, "EIO"), "%s is not stored: %s", subject, err)
}

func (f *foreignClient) try(js jetstream.JetStream, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := js.PublishMsg(ctx, m, jetstream.WithRetryWait(100*time.Millisecond), jetstream.WithRetryAttempts(10))
	return err
}

func (f *foreignClient) start(r request) (any, error) {
	if r.Key == "" || f.has("forgets-keys") {
		r.Key = rand.Text()
	}
	if f.made++; f.has("counts-requests") {
		r.Key = fmt.Sprint("request-", f.made)
	}
	run := runName{Agent: r.Agent, Name: r.Name, Init: wire.InitToken(unless(f, "wrong-init", "foreign", "me"), r.Key)}
	if run.Name == "" {
		run.Name = wire.DefaultSubject(run.Init)
	}
	event := f.event(r.Key, r.Agent, run.Name, r.Data)
	switch {
	case f.has("wrong-data"):
		event["data"] = map[string]any{"input": r.Data}
	case f.has("wrong-agent-type"):
		event["type"] = "start"
	case f.has("cuts-names"):
		event["subject"], _, _ = strings.Cut(run.Name, " ")
	}
	for name, value := range map[string]string{
		"accesscontrol": r.AccessControl, "traceparent": r.TraceParent, "requirepermission": strings.Join(r.Require, ","),
	} {
		if value != "" && !f.has("no-attributes") {
			event[name] = value
		}
	}
	if r.Tokens > 0 {
		event["tokenbudget"] = fmt.Sprint(r.Tokens)
	}
	token := unless(f, "dots", wire.NameToken(r.Agent), r.Agent)
	return map[string]runName{"run": run}, f.store(f.named("agentd.start."+token), event)
}

// wait looks for the terminal event, and hears it.
func (f *foreignClient) wait(ctx context.Context, run *runName) (any, error) {
	subject := "agentd.done." + f.address(run) + "." + unless(f, "any-end", run.Init, "*")
	heard, err := f.nc.SubscribeSync(subject)
	if err != nil {
		return nil, err
	}
	defer func() { _ = heard.Unsubscribe() }()
	for {
		stored, err := f.nc.Request("$JS.API.DIRECT.GET.AGENTD_DONE."+subject, nil, time.Second)
		found := err == nil && stored.Header.Get("Status") == ""
		if f.has("only-looks-once") && !found || f.has("any-end") || f.has("only-hears") {
			found = false
		}
		if !found {
			patience, stop := context.WithTimeout(ctx, time.Second)
			stored, err = heard.NextMsgWithContext(patience)
			stop()
			found = err == nil
			if f.has("only-looks-once") && !found {
				return nil, sdk.Errorf(sdk.CodeUnavailable, "it takes too long")
			}
		}
		if found {
			return f.result(stored)
		}
	}
}

func (f *foreignClient) result(m *nats.Msg) (any, error) {
	var event struct {
		Type   string          `json:"type"`
		Data   json.RawMessage `json:"data"`
		Reason string          `json:"terminationreason"`
		Other  any             `json:"conformanceflag"`
	}
	if err := json.Unmarshal(m.Data, &event); err != nil {
		return nil, err
	}
	if f.has("strict") && event.Other != nil {
		return nil, errors.New("what is conformanceflag?")
	}
	if p, failed := wire.ProblemIn(event.Type, event.Data); failed && !f.has("errors-are-results") {
		code := p.Code
		if code == "" {
			if f.has("wants-codes") {
				return map[string]any{"result": map[string]any{"type": event.Type, "data": event.Data}}, nil
			}
			code = sdk.Code(p.ErrorName)
		}
		return nil, &sdk.Error{Code: code, Message: p.ErrorMessage, Faults: p.Faults}
	}
	return map[string]any{"result": map[string]any{
		"type": event.Type, "data": unless[any](f, "empty-results", event.Data, map[string]any{}), "reason": event.Reason,
	}}, nil
}

// follow tells live events, and asks for the milestones that are missing.
func (f *foreignClient) follow(ctx context.Context, r request, tell func(any)) (any, error) {
	lives, err := f.nc.SubscribeSync("agentd.stream." + f.address(r.Run))
	if err != nil {
		return nil, err
	}
	defer func() { _ = lives.Unsubscribe() }()
	asked, err := f.nc.SubscribeSync("agentd.watch.ask")
	if err != nil {
		return nil, err
	}
	defer func() { _ = asked.Unsubscribe() }()
	var at wire.Mark
	if r.After != nil && !f.has("from-the-start") {
		at = *r.After
	}
	whole := at == wire.Mark{}
	show := func(l wire.Live) (over bool) {
		tell(map[string]told{"live": {l.Type, l.Revision, l.Index, l.Ephemeral}})
		if !l.Ephemeral {
			at, whole = wire.Mark{Revision: l.Revision, Index: l.Index}, l.Index+1 == l.Count
		}
		return l.Type == wire.MilestoneFinished
	}
	history := func() (over bool, err error) {
		for {
			var page wire.RunStatus
			if err := f.get(r.Run.Agent, map[string]any{"run": r.Run.Name, "after": at}, &page); err != nil {
				return errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) && f.has("wants-runs"), nil
			}
			if page.Purged > 0 && !f.has("asks-for-ever") {
				return true, f.purged()
			}
			for _, l := range page.Milestones {
				if show(l) {
					return true, nil
				}
			}
			if !page.More || f.has("one-page") {
				return false, nil
			}
		}
	}
	announce := func() {
		if !f.has("unannounced") {
			_ = f.nc.Publish("agentd.watch."+f.address(r.Run), nil)
		}
	}
	if !f.has("announces-late") {
		announce()
	}
	if over, err := history(); over {
		return done, err
	}
	if f.has("announces-late") {
		announce()
	}
	for last := time.Now(); ctx.Err() == nil; {
		if m, err := asked.NextMsg(time.Millisecond); err == nil && m != nil && !f.has("deaf-client") || time.Since(last) > 2*time.Second && !f.has("announces-once") {
			last = time.Now()
			announce()
			if f.has("only-live") || f.has("one-page") {
				continue
			}
			if over, err := history(); over {
				return done, err
			}
		}
		m, err := lives.NextMsg(100 * time.Millisecond)
		if err != nil {
			continue
		}
		var l wire.Live
		if err := json.Unmarshal(m.Data, &l); err != nil {
			return nil, err
		}
		next := l.Revision == at.Revision && l.Index == at.Index+1 || whole && l.Revision == at.Revision+1 && l.Index == 0
		switch {
		case l.Ephemeral && f.has("strict") && l.Type == "conformance.fragment":
			return nil, errors.New("what is conformance.fragment?")
		case l.Ephemeral, f.has("repeats"):
		case !at.Before(l):
			continue
		case !next && !f.has("only-live"):
			if over, err := history(); over {
				return done, err
			}
			continue
		}
		if show(l) {
			return done, nil
		}
	}
	return done, nil
}

// purged is what becomes of following a run whose history was removed.
func (f *foreignClient) purged() error {
	if f.has("unconcerned") {
		return nil
	}
	return sdk.Errorf(unless(f, "own-codes", sdk.CodeUnknownRun, "EIO"), "the history of the run was removed")
}

// get asks a worker.
func (f *foreignClient) get(agent string, query, answer any) error {
	body, err := json.Marshal(query)
	if err != nil {
		return err
	}
	subject := "agentd.get." + wire.NameToken(agent)
	err = f.getOn(f.named(subject), body, answer)
	if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) && !f.has("sees-its-own") {
		return f.getOn(subject, body, answer)
	}
	return err
}

func (f *foreignClient) getOn(subject string, body []byte, answer any) error {
	m, err := f.nc.Request(subject, body, 2*time.Second)
	if err != nil {
		return sdk.Errorf(unless(f, "own-codes", sdk.CodeUnavailable, "EIO"), "no worker answers").WithCause(err)
	}
	if code := m.Header.Get("Nats-Service-Error-Code"); code != "" && !f.has("reads-no-headers") {
		return sdk.Errorf(sdk.Code(code), "%s", m.Header.Get("Nats-Service-Error"))
	}
	if len(m.Data) == 0 {
		return nil
	}
	return json.Unmarshal(m.Data, answer)
}

func (f *foreignClient) list(r request) (any, error) {
	runs := []string{}
	for cursor := ""; ; {
		var page wire.RunList
		err := f.get(r.Agent, map[string]any{"list": wire.ListQuery{Cursor: cursor, Status: wire.Status(r.Status)}}, &page)
		if err != nil {
			return nil, err
		}
		for _, run := range page.Runs {
			runs = append(runs, run.Run)
		}
		if cursor = page.Next; cursor == "" || f.has("one-page") && len(runs) == 0 {
			return map[string]any{"runs": runs}, nil
		}
	}
}

// reply answers and decides what a run asks.
func (f *foreignClient) reply(r request) (any, error) {
	var status wire.RunStatus
	if err := f.get(r.Run.Agent, map[string]any{"run": r.Run.Name}, &status); err != nil {
		return nil, err
	}
	var calls []wire.WaitingCall
	for _, w := range status.Waiting {
		if r.Call == "" || r.Call == w.Call {
			calls = append(calls, w)
		}
	}
	if len(calls) == 0 || len(calls) > 1 && !f.has("takes-any") {
		return nil, sdk.Errorf(sdk.CodeUnknownRun, "the run waits for %d answers", len(calls))
	}
	call, kind := calls[0], "agentd.question.answered"
	data := map[string]any{"answer": unless(f, "shouts", r.Text, strings.ToUpper(r.Text))}
	switch call.Type {
	case sdk.TypeConversationTurn:
		kind, data = "agentd.conversation.answered", map[string]any{"message": r.Text, "end": r.End && !f.has("endless")}
	case sdk.TypePermissionRequest:
		var asked struct {
			Digest string `json:"args_sha256"`
		}
		if err := json.Unmarshal(call.Asked, &asked); err != nil {
			return nil, err
		}
		if r.ArgsHash != "" && r.ArgsHash != asked.Digest && !f.has("decides-blindly") {
			return nil, sdk.Errorf(sdk.CodeDecisionRefused, "the arguments are others")
		}
		kind, data = sdk.TypePermissionDecided, map[string]any{"decision": r.Decision, "args_sha256": unless(f, "no-digest", asked.Digest, "")}
	}
	event := f.event(call.Event+"-"+unless(f, "one-answer", rand.Text(), "answer"), kind, r.Run.Name, data)
	event["parentid"] = unless(f, "wrong-parentid", call.Event, call.Call)
	tokens := wire.DomainToken(call.Domain) + "." + wire.NameToken(call.Type) + "." + f.address(r.Run) + "." + call.Event
	return done, f.store(f.named("agentd.in."+tokens), event)
}

// cancel has a run end, as its own or as nobody in particular.
func (f *foreignClient) cancel(r request) error {
	var status wire.RunStatus
	if err := f.get(r.Run.Agent, map[string]any{"run": r.Run.Name}, &status); err != nil {
		return err
	}
	who := f.who
	if status.Initiator != who && !f.has("cancels-as-itself") {
		f.who = ""
	}
	defer func() { f.who = who }()
	return f.control("cancel", r.Run, map[string]string{"reason": unless(f, "no-reason", r.Reason, "")})
}

func (f *foreignClient) control(verb string, run *runName, data any) error {
	verb = unless(f, "own-verbs", verb, "note")
	return f.store(f.named("agentd.ctl."+verb+"."+f.address(run)), f.event(rand.Text(), "agentd.run."+verb, run.Name, data))
}

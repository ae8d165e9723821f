package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// greeting is data of an init event that other texts of JSON can stand for.
const greeting = `{"list":[1,2.5,null,true],"message":"Gr\u00fc\u00dfe, <b> \u65e5\u672c \ud83d\ude00","nested":{"a":{"b":"\\\""}}}`

// starting is about init events.
var starting = []clientCase{
	{name: doStart, rule: "An init event is stored on its agent's subject, in structured mode, with the data that it was given.", try: tryStart},
	{name: "identity", rule: "A run is named as workers name it: by the init token of source and id, and without a name after that.", try: tryIdentity},
	{name: "unique", rule: "Requests without a key are runs of their own, also after kill -9.", try: tryUnique},
	{name: "key", rule: "The same key is the same run, also after kill -9.", try: tryKey},
	{name: "run-text", rule: "A run's name may hold any text, which comes as it is and is hashed in subjects.", try: tryRunName},
	{name: "attributes", rule: "accesscontrol, traceparent, tokenbudget and requirepermission are attributes of the init event.", try: tryInitAttributes},
	{name: "principal", rule: "Who is somebody says so: the subjects of starts, requests and messages end with NATS_USER.", try: tryPrincipal},
	{name: "stored", rule: "A start that no stream takes is an error.", try: tryStored},
	{name: "too-large", rule: "A start that is larger than the server takes is the error too_large, and the client goes on.", try: tryTooLarge},
	{name: "reconnect", rule: "A client goes on when the server was away.", try: tryClientReconnect},
}

// started is a start of the program's, with the init event that it published.
type started struct {
	runName
	message
	event wire.Event
}

// start has the program start a run, and looks at the init event.
func (s *clientSession) start(ctx context.Context, r request) (started, error) {
	r.Do, r.Agent = doStart, desk
	if r.Data == nil {
		r.Data = json.RawMessage(`{"message":"hello"}`)
	}
	from := s.seen.count()
	a, err := well(s.ask(ctx, r))
	if err != nil {
		return started{}, err
	}
	if a.Run == nil {
		return started{}, failed("its answer to start has no run")
	}
	m, event, err := s.sent(ctx, from, wire.KindStart)
	return started{*a.Run, m, event}, err
}

// sent is the first event of a kind that was published after those that were seen before.
func (s *clientSession) sent(ctx context.Context, from int, kind wire.Kind) (message, wire.Event, error) {
	beginning := strings.TrimSuffix(s.conn.Subjects().All(kind), ">")
	at, err := s.seen.findFrom(ctx, from, s.Patience, func(m message) bool { return strings.HasPrefix(m.subject, beginning) })
	if err != nil {
		return message{}, wire.Event{}, err
	}
	if at < 0 {
		return message{}, wire.Event{}, failed("nothing is published below %s within %s", beginning, s.Patience)
	}
	messages, _ := s.seen.all()
	m := messages[at]
	event, err := wire.DecodeEvent(m.headers, m.data)
	if err != nil {
		return m, event, failed("what it publishes on %s is not an event: %s", m.subject, err)
	}
	if _, structured := m.headers[contentType]; !structured {
		s.advise("the header Content-Type is missing: say that it is %s", wire.ContentTypeStructured)
	}
	return m, event, nil
}

func tryStart(ctx context.Context, s *clientSession) error {
	run, err := s.start(ctx, request{Data: json.RawMessage(greeting)})
	if err != nil {
		return err
	}
	given, err := wire.Canonicalize([]byte(greeting))
	if err != nil {
		return err
	}
	data, err := wire.Canonicalize(run.event.Data)
	switch subject := s.conn.Subjects().Start(desk); {
	case err != nil:
		return failed("the data cannot be read: %s", err)
	case run.subject != subject:
		return failed("the init event is on %s, not on %s", run.subject, subject)
	case run.event.Type != desk:
		return failed("the type of the init event is %q, not that of the agent's contract, %q", run.event.Type, desk)
	case string(data) != string(given):
		return failed("the data is %s, and was given as %s", quoted(data), given)
	case run.Agent != desk:
		return failed("it says that the run is of agent %q", run.Agent)
	}
	return nil
}

func tryIdentity(ctx context.Context, s *clientSession) error {
	for _, name := range []string{"", s.name()} {
		run, err := s.start(ctx, request{Name: name})
		if err != nil {
			return err
		}
		init := wire.InitToken(run.event.Source, run.event.ID)
		if name == "" {
			name = wire.DefaultSubject(init)
		}
		switch {
		case run.Init != init:
			return failed("it says that the init token is %q; of source %q and id %q it is %q", run.Init, run.event.Source, run.event.ID, init)
		case run.Name != name:
			return failed("it says that the run is %q, and it is %q", run.Name, name)
		case run.event.Subject != name && (run.event.Subject != "" || name != wire.DefaultSubject(init)):
			return failed("the subject of the init event is %q, and the run %q", run.event.Subject, name)
		}
	}
	return nil
}

// name is a run's that there was not yet.
func (s *clientSession) name() string {
	s.made++
	return fmt.Sprintf("conformance/%d", s.made)
}

func tryUnique(ctx context.Context, s *clientSession) error {
	inits := map[string]bool{}
	for range 2 {
		for range 2 {
			run, err := s.start(ctx, request{})
			if err != nil {
				return err
			}
			inits[wire.InitToken(run.event.Source, run.event.ID)] = true
		}
		if err := s.another(""); err != nil {
			return err
		}
	}
	if len(inits) != 4 {
		return failed("4 requests have %d identities: the others are taken for duplicates", len(inits))
	}
	return nil
}

func tryKey(ctx context.Context, s *clientSession) error {
	key := s.name()
	first, err := s.start(ctx, request{Key: key})
	if err != nil {
		return err
	}
	if err := s.another(""); err != nil {
		return err
	}
	again, err := s.start(ctx, request{Key: key})
	switch {
	case err != nil:
		return err
	case again.event.Source != first.event.Source, again.event.ID != first.event.ID, again.event.Subject != first.event.Subject:
		return failed("the same key is source %q, id %q, subject %q and then %q, %q, %q", first.event.Source, first.event.ID,
			first.event.Subject, again.event.Source, again.event.ID, again.event.Subject)
	case again.runName != first.runName:
		return failed("the same key is the run %+v and then %+v", first.runName, again.runName)
	}
	return nil
}

func tryRunName(ctx context.Context, s *clientSession) error {
	name := "trip 7/ü %41 \"日本\" <x>"
	run, err := s.start(ctx, request{Name: name})
	if err != nil {
		return err
	}
	if run.event.Subject != name {
		return failed("the subject of the init event is %q, and the name was %q", run.event.Subject, name)
	}
	if err := s.end(ctx, run.runName, wire.Event{}); err != nil {
		return err
	}
	_, err = s.wait(ctx, run.runName)
	return err
}

func tryInitAttributes(ctx context.Context, s *clientSession) error {
	run, err := s.start(ctx, request{
		AccessControl: team, TraceParent: traceparent, Tokens: 1200, Require: []string{"book_*", "pay"},
	})
	if err != nil {
		return err
	}
	for _, a := range []struct {
		name, want string
		got        any
	}{
		{"accesscontrol", team, run.event.AccessControl},
		{"traceparent", traceparent, run.event.TraceParent},
		{wire.TokenBudget, "1200", run.event.Extensions[wire.TokenBudget]},
		{wire.RequirePermission, "book_*,pay", run.event.Extensions[wire.RequirePermission]},
	} {
		if fmt.Sprint(a.got) != a.want {
			return failed("the attribute %s is %v; it was to be %q", a.name, a.got, a.want)
		}
	}
	return nil
}

func tryPrincipal(ctx context.Context, s *clientSession) error {
	const who = "alice"
	if err := s.another(who); err != nil {
		return err
	}
	defer s.program.kill()
	run, err := s.start(ctx, request{})
	if err != nil {
		return err
	}
	s.worker.put(run.Name, func(r *wire.RunStatus) { r.Init, r.Initiator = run.Init, who })
	from := s.seen.count()
	if _, err := well(s.ask(ctx, request{Do: doStatus, Run: &run.runName})); err != nil {
		return err
	}
	if _, err := well(s.ask(ctx, request{Do: doSend, Run: &run.runName, Text: "hello"})); err != nil {
		return err
	}
	said, _, err := s.sent(ctx, from, wire.KindCtl)
	if err != nil {
		return err
	}
	messages, _ := s.seen.all()
	subjects := []string{run.subject, said.subject}
	for _, m := range messages[from:] {
		if strings.HasPrefix(m.subject, s.conn.Subjects().Get(desk)) {
			subjects = append(subjects, m.subject)
		}
	}
	for _, subject := range subjects {
		if !strings.HasSuffix(subject, "."+who) {
			return failed("as %s it publishes on %s", who, subject)
		}
	}
	return nil
}

func tryStored(ctx context.Context, s *clientSession) error {
	// Who listens to a subject keeps the server from saying that nobody does.
	if err := s.untail(); err != nil {
		return err
	}
	if err := s.conn.JetStream().DeleteStream(ctx, "AGENTD_START"); err != nil {
		return fmt.Errorf("remove the stream: %w", err)
	}
	a, err := s.ask(ctx, request{Do: doStart, Agent: desk, Data: json.RawMessage(`{}`)})
	if err != nil {
		return err
	}
	if a.Error == nil {
		return failed("it says that a run is started, though no stream took it")
	}
	if a.Error.Code != string(sdk.CodeUnavailable) {
		s.advise("the code of the error is %q; %s tells callers that it may work later", a.Error.Code, sdk.CodeUnavailable)
	}
	if err := s.provision(ctx); err != nil {
		return err
	}
	return s.listen()
}

func tryTooLarge(ctx context.Context, s *clientSession) error {
	data, err := json.Marshal(map[string]string{"message": strings.Repeat("hello ", 1<<18)})
	if err != nil {
		return err
	}
	a, err := s.ask(ctx, request{Do: doStart, Agent: desk, Data: data})
	if err != nil {
		return err
	}
	if a.Error == nil {
		return failed("it says that a run is started, though the server takes no message with its data, of %d bytes", len(data))
	}
	if a.Error.Code != string(sdk.CodeTooLarge) {
		s.advise("the code of the error is %q; %s tells callers that it never works", a.Error.Code, sdk.CodeTooLarge)
	}
	_, err = s.start(ctx, request{})
	return about(err, "the next start")
}

func tryClientReconnect(ctx context.Context, s *clientSession) error {
	if _, err := s.start(ctx, request{}); err != nil {
		return err
	}
	if err := s.restartServer(ctx, s.Patience); err != nil {
		return fmt.Errorf("restart the server: %w", err)
	}
	_, err := s.start(ctx, request{})
	return about(err, "after the server was away")
}

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// asking is about requests to workers, and what people say to runs.
var asking = []clientCase{
	{name: doStatus, rule: "How far a run is, a worker says on the request subject of its agent.", try: tryStatus},
	{name: "unknown-run", rule: "An error of a worker, in the headers of its answer, is an error with its code.", try: tryUnknownRun},
	{name: "unavailable", rule: "Where no worker answers, that is an error.", try: tryUnavailable},
	{name: doList, rule: "Lists of runs have all pages, also after an empty one.", try: tryList},
	{name: doAnswer, rule: "A question is answered on its reply subject, with a type and data that it takes.", try: tryAnswerQuestion},
	{name: "turn", rule: "A turn is answered, and the conversation ended, likewise.", try: tryTurn},
	{name: "answer-again", rule: "A further answer, as after a refusal, has another id and is stored too.", try: tryAnswerAgain},
	{name: "several", rule: "Of several calls that wait, the one that is named is answered, and none when none is named.", try: trySeveral},
	{name: doDecide, rule: "A decision says on which arguments it is: those that the request shows.", try: tryDecide},
	{name: "decide-other", rule: "A decision on other arguments than those of the request is not sent.", try: tryDecideOther},
	{name: doSend, rule: "A message goes to its run's control subject.", try: trySend},
	{name: doCancel, rule: "So does a wish that a run ends, with its reason.", try: tryCancel},
	{
		name: "others", try: tryOthers,
		rule: "Of a run that somebody else started, who is somebody asks again without their name, and decides under it; its end is nobody's wish.",
	},
}

func tryStatus(ctx context.Context, s *clientSession) error {
	run, err := s.start(ctx, request{Name: "trip 7/ü %41 \"日本\" <x> status"})
	if err != nil {
		return err
	}
	s.worker.put(run.Name, func(r *wire.RunStatus) { r.Init, r.Status = run.Init, wire.StatusWaiting })
	a, err := well(s.ask(ctx, request{Do: doStatus, Run: &run.runName}))
	if err != nil {
		return err
	}
	if a.Status == nil || a.Status.Status != wire.StatusWaiting || a.Status.Run != run.Name {
		return failed("it says %+v of a run %q that is waiting", a.Status, run.Name)
	}
	return nil
}

func tryUnknownRun(ctx context.Context, s *clientSession) error {
	a, err := s.ask(ctx, request{Do: doStatus, Run: &runName{Agent: desk, Name: s.name()}})
	if err == nil && (a.Error == nil || a.Error.Code != string(sdk.CodeUnknownRun)) {
		return failed("it reports %+v, and the worker says %s", a.Error, sdk.CodeUnknownRun)
	}
	return err
}

func tryUnavailable(ctx context.Context, s *clientSession) error {
	if err := s.worker.stop(); err != nil {
		return err
	}
	// The tail of these requests would keep the server from saying that nobody answers.
	if err := s.untail(); err != nil {
		return err
	}
	if err := until(ctx, s.Patience, func() bool {
		var nobody wire.RunList
		err := s.conn.Ask(ctx, desk, wire.Query{List: &wire.ListQuery{}}, &nobody)
		return errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable})
	}); err != nil {
		return fmt.Errorf("stop answering: %w", err)
	}
	a, err := s.ask(ctx, request{Do: doStatus, Run: &runName{Agent: desk, Name: s.name()}})
	if err != nil {
		return err
	}
	if a.Error == nil {
		return failed("it reports no error where no worker answers")
	}
	if a.Error.Code != string(sdk.CodeUnavailable) {
		s.advise("the code of the error is %q; %s tells callers that it may work later", a.Error.Code, sdk.CodeUnavailable)
	}
	return errors.Join(s.worker.serve(), s.listen())
}

func tryList(ctx context.Context, s *clientSession) error {
	var want []string
	for range 2*page + 1 {
		name := s.name()
		want = append(want, name)
		s.worker.put(name, func(r *wire.RunStatus) { r.Status = wire.StatusDone })
	}
	a, err := well(s.ask(ctx, request{Do: doList, Agent: desk, Status: string(wire.StatusDone)}))
	if err != nil {
		return err
	}
	slices.Sort(a.Runs)
	slices.Sort(want)
	if !slices.Equal(a.Runs, want) {
		return failed("it lists %q, and there are %q", a.Runs, want)
	}
	return nil
}

// asks has a run wait for people, with calls of these types.
func (s *clientSession) asks(ctx context.Context, asked map[string]string) (runName, []wire.WaitingCall, error) {
	run, err := s.start(ctx, request{Name: s.name()})
	if err != nil {
		return runName{}, nil, err
	}
	var waiting []wire.WaitingCall
	for i, kind := range []string{sdk.TypeQuestion, sdk.TypeConversationTurn, sdk.TypePermissionRequest} {
		data, wanted := asked[kind]
		if !wanted {
			continue
		}
		call := wire.CallID(run.key(), run.Init, 1, i, "conformance", []byte("{}"))
		waiting = append(waiting, wire.WaitingCall{
			Call: call, Type: kind, Domain: "human.interaction", Event: call + "-r2", Schema: "agentd:/conformance/" + kind + "/1.0.0",
			Asked: json.RawMessage(data),
		})
	}
	s.worker.put(run.Name, func(r *wire.RunStatus) { r.Init, r.Status, r.Waiting = run.Init, wire.StatusWaiting, waiting })
	return run.runName, waiting, nil
}

const (
	aQuestion = `{"question":"When?"}`
	aTurn     = `{"message":"Where to?"}`
	aPlace    = "to Lisbon"
	// memberMessage is what people say, in the data of turns and messages.
	memberMessage = "message"
	// aDigest is that of the arguments which a request shows.
	aDigest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	aCall   = `{"tool":"book_trip","args":{},"args_sha256":"` + aDigest + `"}`
)

// reply has the program answer, and looks at what it publishes for a call.
func (s *clientSession) reply(ctx context.Context, run runName, call wire.WaitingCall, r request) (wire.Event, error) {
	from := s.seen.count()
	r.Run = &run
	if _, err := well(s.ask(ctx, r)); err != nil {
		return wire.Event{}, err
	}
	m, event, err := s.sent(ctx, from, wire.KindIn)
	if err != nil {
		return event, err
	}
	subject := s.conn.Subjects().Reply(wire.CallAddress{
		Domain: wire.DomainToken(call.Domain), Type: wire.NameToken(call.Type), Agent: wire.NameToken(desk), Run: run.key(), Call: call.Event,
	})
	switch {
	case m.subject != subject:
		return event, failed("the answer is on %s, not on %s", m.subject, subject)
	case event.ParentID != "" && event.ParentID != call.Event:
		return event, failed("the answer's parentid is %q, and the event that asks is %q", event.ParentID, call.Event)
	case event.Subject != "" && event.Subject != run.Name:
		return event, failed("the answer's subject is %q, and the run %q", event.Subject, run.Name)
	case event.ParentID == "":
		s.advise("the answer has no parentid")
	}
	return event, nil
}

// wantData is a finding unless an event has a type, and members of its data are as wanted.
func wantData(event wire.Event, kind string, want map[string]any) error {
	if event.Type != kind {
		return failed("the type is %q, not %q", event.Type, kind)
	}
	var data map[string]any
	if err := json.Unmarshal(event.Data, &data); err != nil {
		return failed("the data cannot be read: %s", err)
	}
	for name, value := range want {
		if data[name] != value {
			return failed("%q of the data is %v, not %v", name, data[name], value)
		}
	}
	return nil
}

func tryAnswerQuestion(ctx context.Context, s *clientSession) error {
	run, waiting, err := s.asks(ctx, map[string]string{sdk.TypeQuestion: aQuestion})
	if err != nil {
		return err
	}
	event, err := s.reply(ctx, run, waiting[0], request{Do: doAnswer, Text: "im März"})
	if err != nil {
		return err
	}
	return wantData(event, sdk.TypeQuestionAnswered, map[string]any{"answer": "im März"})
}

func tryTurn(ctx context.Context, s *clientSession) error {
	run, waiting, err := s.asks(ctx, map[string]string{sdk.TypeConversationTurn: aTurn})
	if err != nil {
		return err
	}
	event, err := s.reply(ctx, run, waiting[0], request{Do: doAnswer, Text: aPlace, End: true})
	if err != nil {
		return err
	}
	return wantData(event, sdk.TypeConversationAnswered, map[string]any{memberMessage: aPlace, "end": true})
}

func tryAnswerAgain(ctx context.Context, s *clientSession) error {
	run, waiting, err := s.asks(ctx, map[string]string{sdk.TypeQuestion: aQuestion})
	if err != nil {
		return err
	}
	first, err := s.reply(ctx, run, waiting[0], request{Do: doAnswer, Text: "in May"})
	if err != nil {
		return err
	}
	again, err := s.reply(ctx, run, waiting[0], request{Do: doAnswer, Text: "in June"})
	if err != nil {
		return about(err, "again")
	}
	if again.Source == first.Source && again.ID == first.ID {
		return failed("the second answer has the id of the first, %q, and is taken for it", first.ID)
	}
	return nil
}

func trySeveral(ctx context.Context, s *clientSession) error {
	run, waiting, err := s.asks(ctx, map[string]string{sdk.TypeQuestion: aQuestion, sdk.TypeConversationTurn: aTurn})
	if err != nil {
		return err
	}
	from := s.seen.count()
	a, err := s.ask(ctx, request{Do: doAnswer, Run: &run, Text: "in May"})
	if err != nil {
		return err
	}
	if a.Error == nil {
		return failed("it answers one of two calls that wait, and nobody said which")
	}
	if s.published(from, wire.KindIn) {
		return failed("it reports an error, and answers all the same")
	}
	event, err := s.reply(ctx, run, waiting[1], request{Do: doAnswer, Call: waiting[1].Call, Text: aPlace})
	if err != nil {
		return err
	}
	return wantData(event, sdk.TypeConversationAnswered, map[string]any{memberMessage: aPlace})
}

// published reports whether something of a kind was published after what was seen before.
func (s *clientSession) published(from int, kind wire.Kind) bool {
	messages, _ := s.seen.all()
	return slices.ContainsFunc(messages[from:], func(m message) bool {
		return strings.HasPrefix(m.subject, strings.TrimSuffix(s.conn.Subjects().All(kind), ">"))
	})
}

func tryDecide(ctx context.Context, s *clientSession) error {
	run, waiting, err := s.asks(ctx, map[string]string{sdk.TypePermissionRequest: aCall})
	if err != nil {
		return err
	}
	event, err := s.reply(ctx, run, waiting[0], request{Do: doDecide, Decision: string(sdk.DecisionAllow)})
	if err != nil {
		return err
	}
	return wantData(event, sdk.TypePermissionDecided, map[string]any{"decision": string(sdk.DecisionAllow), "args_sha256": aDigest})
}

func tryDecideOther(ctx context.Context, s *clientSession) error {
	run, _, err := s.asks(ctx, map[string]string{sdk.TypePermissionRequest: aCall})
	if err != nil {
		return err
	}
	from := s.seen.count()
	a, err := s.ask(ctx, request{Do: doDecide, Run: &run, Decision: string(sdk.DecisionAllow), ArgsHash: strings.Repeat("0", 64)})
	if err != nil {
		return err
	}
	if a.Error == nil || s.published(from, wire.KindIn) {
		s.advise("it sends a decision on arguments that the request does not show: the run refuses it, and nobody is told here")
	}
	return nil
}

// control has the program do something that goes to a run's control subject.
func (s *clientSession) control(ctx context.Context, verb wire.ControlVerb, r request, want map[string]any) error {
	run, err := s.start(ctx, request{Name: s.name()})
	if err != nil {
		return err
	}
	s.worker.put(run.Name, func(r *wire.RunStatus) { r.Init = run.Init })
	from := s.seen.count()
	r.Run = &run.runName
	if _, err := well(s.ask(ctx, r)); err != nil {
		return err
	}
	m, event, err := s.sent(ctx, from, wire.KindCtl)
	if err != nil {
		return err
	}
	if subject := s.conn.Subjects().Control(verb, desk, run.key()); m.subject != subject {
		return failed("it is on %s, not on %s", m.subject, subject)
	}
	return wantData(event, event.Type, want)
}

func trySend(ctx context.Context, s *clientSession) error {
	return s.control(ctx, wire.ControlMessage, request{Do: doSend, Text: "and a hotel"}, map[string]any{memberMessage: "and a hotel"})
}

func tryCancel(ctx context.Context, s *clientSession) error {
	return s.control(ctx, wire.ControlCancel, request{Do: doCancel, Reason: "changed my mind"}, map[string]any{"reason": "changed my mind"})
}

// tryOthers has somebody decide on what another's run asks, as approvers do, and cancel it, as operators do.
func tryOthers(ctx context.Context, s *clientSession) error {
	const who = "alice"
	if err := s.another(who); err != nil {
		return err
	}
	defer s.program.kill()
	run, _, err := s.asks(ctx, map[string]string{sdk.TypePermissionRequest: aCall})
	if err != nil {
		return err
	}
	s.worker.put(run.Name, func(r *wire.RunStatus) { r.Initiator = "bob" })
	for _, said := range []struct {
		request
		kind wire.Kind
		end  string
	}{
		{request{Do: doDecide, Run: &run, Decision: string(sdk.DecisionDeny)}, wire.KindIn, "." + who},
		{request{Do: doCancel, Run: &run, Reason: "late"}, wire.KindCtl, run.key().String()},
	} {
		from := s.seen.count()
		if _, err := well(s.ask(ctx, said.request)); err != nil {
			return about(err, "%s", said.Do)
		}
		m, _, err := s.sent(ctx, from, said.kind)
		if err != nil {
			return about(err, "%s", said.Do)
		}
		if !strings.HasSuffix(m.subject, said.end) {
			return failed("%s of a run that bob started is on %s, and must end with %s", said.Do, m.subject, said.end)
		}
	}
	return nil
}

package conformance

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// delay is how long answers take that come late.
const delay = 3 * time.Second

// waiting is about how runs end.
var waiting = []clientCase{
	{name: doWait, rule: "The result of a run that has ended is what its terminal event says.", try: tryWait},
	{name: "wait-late", rule: "An end that comes late, and twice, is one result.", try: tryWaitLate},
	{name: "wait-other", rule: "The end of another request with the same name is not one's own.", try: tryWaitOther},
	{name: "wait-error", rule: "A run that ends with an error is an error with its code and faults.", try: tryWaitError},
	{name: "wait-bare-error", rule: "An error without code, retryable and faults is an error all the same.", try: tryWaitBareError},
	{name: "extensions", rule: "Attributes that a client does not know change nothing.", try: tryWaitExtensions},
	{name: "wait-reconnect", rule: "An end that comes while the connection is lost is heard.", try: tryWaitReconnect},
	{name: "wait-kill", rule: "A client that is killed while it waits, and started again, has the result.", try: tryWaitKill},
}

const (
	doneType = "travel.desk.done"
	result   = `{"response":"Grüße"}`
)

// end stores the terminal event of a run; what the event does not say is as a worker says it.
func (s *clientSession) end(ctx context.Context, run runName, event wire.Event) error {
	event, subject := s.terminal(run, event)
	return s.conn.Publish(ctx, subject, event)
}

// terminal is a run's terminal event with its subject.
func (s *clientSession) terminal(run runName, event wire.Event) (wire.Event, string) {
	event.ID, event.Source, event.Subject, event.To = wire.TerminalID(run.key(), run.Init), desk, run.Name, "agentd.client"
	event.Time, event.DataContentType, event.ParentID = time.Now(), wire.ContentTypeJSON, "init-1"
	if event.Type == "" {
		event.Type, event.Data = doneType, json.RawMessage(result)
	}
	if event.Extensions == nil {
		event.Extensions = map[string]any{}
	}
	if _, said := event.Extensions[wire.TerminationReason]; !said {
		event.Extensions[wire.TerminationReason] = "completed:answer"
	}
	return event, s.conn.Subjects().Done(desk, run.key(), run.Init)
}

// wait has the program wait for a run, which ends well.
func (s *clientSession) wait(ctx context.Context, run runName) (answer, error) {
	return s.resulting(s.ask(ctx, request{Do: doWait, Run: &run}))
}

// resulting is an answer that is the result of a run that ended well.
func (s *clientSession) resulting(a answer, err error) (answer, error) {
	if a, err = well(a, err); err != nil {
		return a, err
	}
	if a.Result == nil {
		return a, failed("its answer to wait has no result")
	}
	data, err := wire.Canonicalize(a.Result.Data)
	switch {
	case err != nil:
		return a, failed("the data of the result cannot be read: %s", err)
	case a.Result.Type != doneType, string(data) != result:
		return a, failed("the result is %s %s, and the terminal event is %s %s", a.Result.Type, quoted(data), doneType, result)
	case a.Result.Reason == "":
		s.advise("the result does not say why the run ended: %s has it", wire.TerminationReason)
	case !strings.HasPrefix(a.Result.Reason, "completed"):
		return a, failed("it says that the run ended for %q, and the event says completed:answer", a.Result.Reason)
	}
	return a, nil
}

// tryEnd tries what the program has of a run that has ended with an event.
func (s *clientSession) tryEnd(ctx context.Context, event wire.Event) error {
	run, err := s.start(ctx, request{})
	if err != nil {
		return err
	}
	if err := s.end(ctx, run.runName, event); err != nil {
		return err
	}
	_, err = s.wait(ctx, run.runName)
	return err
}

func tryWait(ctx context.Context, s *clientSession) error { return s.tryEnd(ctx, wire.Event{}) }

// early is a finding if the program answers before it can know.
func (s *clientSession) early(ctx context.Context) error {
	if err := retry.Sleep(ctx, delay); err != nil {
		return err
	}
	messages, _ := s.program.lines.all()
	if s.program.read < len(messages) {
		return failed("it answers %s before the run has ended", quoted(messages[s.program.read].data))
	}
	return nil
}

// awaited is a run that the program has started and waits for, whose end is to come.
func (s *clientSession) awaited(ctx context.Context) (runName, error) {
	run, err := s.start(ctx, request{})
	if err != nil {
		return run.runName, err
	}
	if err := s.tell(request{Do: doWait, Run: &run.runName}); err != nil {
		return run.runName, err
	}
	return run.runName, s.early(ctx)
}

func tryWaitLate(ctx context.Context, s *clientSession) error {
	run, err := s.awaited(ctx)
	if err != nil {
		return err
	}
	event, subject := s.terminal(run, wire.Event{})
	body, err := event.Encode()
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := s.conn.Put(ctx, subject, structured(), body); err != nil {
			return err
		}
	}
	if _, err := s.resulting(s.next(ctx, doWait)); err != nil {
		return err
	}
	_, err = s.wait(ctx, run)
	return err
}

func structured() map[string][]string {
	return map[string][]string{contentType: {wire.ContentTypeStructured}}
}

func tryWaitOther(ctx context.Context, s *clientSession) error {
	run, err := s.start(ctx, request{Name: s.name()})
	if err != nil {
		return err
	}
	other := run.runName
	other.Init = wire.InitToken("somebody", "else")
	event, subject := s.terminal(other, wire.Event{Type: doneType, Data: json.RawMessage(`{"response":"of another"}`)})
	body, err := event.Encode()
	if err != nil {
		return err
	}
	if _, err := s.conn.Put(ctx, subject, structured(), body); err != nil {
		return err
	}
	if err := s.tell(request{Do: doWait, Run: &run.runName}); err != nil {
		return err
	}
	if err := s.early(ctx); err != nil {
		return err
	}
	if _, err := s.conn.Put(ctx, subject, structured(), body); err != nil { // whoever listens hears it again
		return err
	}
	if err := s.early(ctx); err != nil {
		return err
	}
	if err := s.end(ctx, run.runName, wire.Event{}); err != nil {
		return err
	}
	_, err = s.resulting(s.next(ctx, doWait))
	return err
}

// failing has the program wait for a run that ends with an error, and returns what it reports.
func (s *clientSession) failing(ctx context.Context, data string) (*failure, error) {
	run, err := s.start(ctx, request{})
	if err != nil {
		return nil, err
	}
	if err := s.end(ctx, run.runName, wire.Event{
		Type: wire.ErrorType(desk), Data: json.RawMessage(data), Extensions: map[string]any{wire.TerminationReason: "error:refused"},
	}); err != nil {
		return nil, err
	}
	a, err := s.ask(ctx, request{Do: doWait, Run: &run.runName})
	if err == nil && a.Error == nil {
		err = failed("it reports no error of a run that ended with one")
	}
	return a.Error, err
}

func tryWaitError(ctx context.Context, s *clientSession) error {
	e, err := s.failing(ctx, `{"errorName":"contract_violation","errorMessage":"the data does not fit","errorStack":null,`+
		`"code":"contract_violation","retryable":false,"faults":[{"path":"$.message","expected":"string","got":"number 7"}]}`)
	switch {
	case err != nil:
		return err
	case e.Code != string(sdk.CodeContractViolation):
		return failed("the code of the error is %q, not contract_violation", e.Code)
	case len(e.Faults) != 1 || e.Faults[0].Path != "$.message":
		return failed("the faults of the error are lost: %+v", e.Faults)
	case !strings.Contains(e.Message, "the data does not fit"):
		s.advise("the error's message is %q, and errorMessage is made to be shown", e.Message)
	}
	return nil
}

func tryWaitBareError(ctx context.Context, s *clientSession) error {
	e, err := s.failing(ctx, `{"errorName":"Error","errorMessage":"it did not work","errorStack":null}`)
	if err == nil && e.Code != "Error" {
		s.advise("the code of an error that has none is %q; its errorName, %q, is as good", e.Code, "Error")
	}
	return err
}

func tryWaitExtensions(ctx context.Context, s *clientSession) error {
	return s.tryEnd(ctx, wire.Event{Type: doneType, Data: json.RawMessage(result), Extensions: map[string]any{
		"conformancetext": "a, b", "conformancenumber": json.Number("7"), "conformanceflag": true, "conformancenull": nil,
	}})
}

func tryWaitReconnect(ctx context.Context, s *clientSession) error {
	run, err := s.awaited(ctx)
	if err != nil {
		return err
	}
	if err := s.restartServer(ctx, s.Patience); err != nil {
		return err
	}
	if err := s.end(ctx, run, wire.Event{}); err != nil {
		return err
	}
	// A client that has not reconnected yet looks again when it has, or after half a minute.
	_, err = s.resulting(s.nextWithin(ctx, doWait, s.Patience+lookAgain))
	return err
}

// lookAgain is how long a client may rely on what it hears before it looks.
const lookAgain = 30 * time.Second

func tryWaitKill(ctx context.Context, s *clientSession) error {
	run, err := s.awaited(ctx)
	if err != nil {
		return err
	}
	if err := s.another(""); err != nil {
		return err
	}
	if err := s.end(ctx, run, wire.Event{}); err != nil {
		return err
	}
	_, err = s.wait(ctx, run)
	return err
}

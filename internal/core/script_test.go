package core_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// script plays the inputs of a transcript.
type script struct {
	*testing.T
	*rig
	policy policy
	// last is the message that was delivered last.
	last core.Input
}

// input makes the input of a line; ok is false when the line only lets time pass.
func (s *script) input(line string) (in core.Input, ok bool) {
	s.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	if verb == "wait" {
		s.now += millis(s.T, rest)
		return core.Input{}, false
	}
	if verb == "again" {
		s.last.Rev = s.state.Rev + 1
		return s.last, true
	}
	owner := ""
	if by, found := strings.CutPrefix(rest, "by="); found {
		owner, rest, _ = strings.Cut(by, " ")
	}
	ev, id := s.event(verb, rest)
	switch {
	case isWork(ev) && owner != "":
		return s.work(owner, ev), true
	case !isWork(ev) && verb != "redeliver":
		s.last = s.deliver(id, ev)
		return s.last, true
	case s.state.Driver == nil:
		s.Fatalf("%s: nobody drives the run", line)
	case verb == "redeliver":
		s.alone = rest == "alone"
		return s.redelivery(), true
	}
	return s.drive(ev), true
}

// event is what a verb stands for, and the id of the message that brings it.
func (s *script) event(verb, rest string) (ev core.Event, id string) {
	s.Helper()
	switch verb {
	case "start":
		ev := started("order 7", rest)
		return ev, ev.Init.ID
	case "start-other":
		ev := started("order 7", rest)
		ev.Init.ID, ev.Init.Token = "init-2", wire.InitToken(ev.Init.Source, "init-2")
		return ev, ev.Init.ID
	case "start-call":
		ev := startedByCall(rest)
		return ev, ev.Init.ID
	case "answer":
		ev := s.parseAnswer(rest)
		return ev, ev.EventID
	case "fire":
		due := s.state.Timer
		if rest != "" {
			due = epoch + millis(s.T, rest)
		}
		return core.Fired{Now: s.now, Due: due}, "fire-" + offset(due)
	case "compact":
		messages, summary, _ := strings.Cut(rest, " ")
		n := number(s.T, messages)
		return core.Compacted{Summary: core.Summary{Messages: n, Lined: n, Text: summary, Evicted: 7, Files: []string{"/a"}}, Reply: sdk.ModelReply{
			Usage: sdk.Usage{Prompt: 30, Completion: 10}, Model: "scripted",
		}}, ""
	case "send":
		return steered(rest), rest
	case "send-urgent":
		ev := steered(rest)
		ev.Note.Urgent = true
		return ev, rest
	case "retry":
		ev := retriedBy(rest)
		if s.state.Unbegun() {
			ev.Beginning = &core.Beginning{System: "Be brief.", Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "Once more.")}}
		}
		return ev, rest
	case "undo":
		id, names, _ := strings.Cut(rest, " ")
		ev := core.UndoAsked{Operation: core.Operation{ID: id, Source: "operator", Who: "ann"}}
		for _, c := range undoStack(s.rig) {
			if names == "" || slices.Contains(strings.Fields(names), wire.CallPlace(c.ID)) {
				ev.Calls = append(ev.Calls, wire.UndoCall{Call: c.ID, Tool: c.Tool})
			}
		}
		return ev, id
	case "cancel":
		return core.CancelAsked{Message: rest}, "cancel-1"
	case "cancel-call":
		call, reason, _ := strings.Cut(rest, " ")
		return core.CallCancelAsked{Call: s.used(call), Message: reason}, "cancel-call"
	case "late":
		call, data, _ := strings.Cut(rest, " ")
		return core.Returned{Results: []core.Result{{Call: s.used(call), Kind: core.ResultInline, Data: json.RawMessage(data)}}}, ""
	case "park":
		ev := core.Parked{Why: core.ParkModel, Key: "openai_gpt", Model: "gpt", Code: sdk.CodeUnavailable, Message: "no route"}
		if rest != "" {
			ev.Why, ev.Code, ev.Message, ev.After = core.ParkRate, sdk.CodeRateLimited, "slow down", millis(s.T, rest)
		}
		return ev, ""
	case "let-go":
		return core.Parked{Why: core.ParkPaused}, ""
	case "unpark":
		return core.Unparked{Key: rest, Received: s.now}, "unpark"
	case "pause":
		return core.PauseAsked{Reason: rest, Received: s.now}, "pause"
	case "resume":
		return core.ResumeAsked{Received: s.now}, "resume"
	case "tag":
		key, value, _ := strings.Cut(rest, "=")
		return core.TagAsked{ID: rest, Tags: []core.TagChange{{Key: key, Value: &value}}}, rest
	case "release":
		s.causes[""] = s.causes[s.state.Driver.Owner]
		return core.Released{}, ""
	case "redeliver":
		return core.TakenOver{}, ""
	case "misread":
		class, text, _ := strings.Cut(rest, " ")
		ev := s.replied(text)
		ev.Output, ev.Reply.Fault = nil, &sdk.ReplyFault{Class: class, Message: "It is not a call."}
		return ev, ""
	case "reply":
		return s.parseReply(rest), ""
	case "object":
		return s.parseObjection(rest), ""
	case "fail":
		return core.Ended{Ending: core.Ending{Reason: core.ReasonError, Code: sdk.CodeModel, Message: rest}}, ""
	}
	return s.nextEvent(verb, rest), ""
}

// nextEvent is work that follows from what there is to do next: inquire, begin, return, build and end.
func (s *script) nextEvent(verb, rest string) core.Event {
	s.Helper()
	switch next := s.next().(type) {
	case core.AskContext:
		return s.inquiry()
	case core.RunTools:
		if verb == "gate" {
			return s.parseGate(next, rest)
		}
		if verb == "begin" {
			var ev core.Began
			for _, c := range next.Begin {
				ev.Calls = append(ev.Calls, c.ID)
			}
			return ev
		}
		return s.parseReturn(next, rest)
	case core.Review:
		return s.parseReview(rest)
	case core.Undo:
		ev := s.undoing(next)
		s.policy.rule(ev.Admission)
		return ev
	case core.BuildOutput:
		return core.Built{Output: *output(s.state.StopText())}
	case core.End:
		return core.Ended{Ending: next.Ending}
	}
	s.Fatalf("%s %s: no such work to do", verb, rest)
	return nil
}

// inquiry is the question to context providers.
func (s *script) inquiry() core.Event {
	s.Helper()
	question, err := core.ContextQuestion(&s.state)
	if err != nil {
		s.Fatal(err)
	}
	return core.Inquired{Question: question}
}

// parseGate reads what hooks make of each call that was allowed: "pass", or a result as of parseReturn.
func (s *script) parseGate(next core.RunTools, rest string) core.Event {
	s.Helper()
	var ev core.Returned
	verdicts := strings.Split(rest, " | ")
	for i, c := range next.Judge {
		if verdicts[i] == "pass" {
			ev.Passed = append(ev.Passed, c.ID)
			continue
		}
		data, failed := strings.CutPrefix(verdicts[i], "error ")
		kind := core.ResultSet
		if failed {
			kind = core.ResultBlocked
		}
		ev.Results = append(ev.Results, core.Result{Call: c.ID, Kind: kind, Data: json.RawMessage(data), Error: failed})
	}
	return ev
}

// parseReview reads the messages that hooks add, separated by |.
func (s *script) parseReview(rest string) core.Event {
	ev := s.reviewed()
	for _, text := range strings.Split(rest, " | ") {
		if text != "" {
			ev.Messages = append(ev.Messages, sdk.Text(sdk.RoleUser, text))
		}
	}
	return ev
}

// steered is a message into the run, with an id that is made of its text.
func steered(text string) core.Steered {
	return core.Steered{Note: core.Note{
		ID: "n" + core.Digest([]byte(text))[:8], Text: text, Event: "message-" + text, Source: "shop.web", Who: "ann",
	}}
}

// parseReturn reads a result for each tool that is run: JSON, "error" and JSON, or "ask" and a question, "keep" and a state.
// Those that are lost need none.
func (s *script) parseReturn(next core.RunTools, rest string) core.Event {
	s.Helper()
	var ev core.Returned
	results := strings.Split(rest, " | ")
	for i, c := range next.Run {
		if question, asks := strings.CutPrefix(results[i], "ask "); asks {
			data, state, _ := strings.Cut(question, " keep ")
			ev.Asks = append(ev.Asks, core.Ask{Call: c.ID, Data: json.RawMessage(data), State: json.RawMessage(state)})
			continue
		}
		data, failed := strings.CutPrefix(results[i], "error ")
		ev.Results = append(ev.Results, core.Result{Call: c.ID, Kind: core.ResultInline, Data: json.RawMessage(data), Error: failed})
	}
	for _, c := range next.Lost {
		ev.Results = append(ev.Results, core.OutcomeUnknown(c))
	}
	return ev
}

// parseReply reads TEXT [=> TOOL ARGUMENTS | TOOL ARGUMENTS …].
func (s *script) parseReply(rest string) core.Event {
	text, asked, _ := strings.Cut(rest, "=>")
	var calls []sdk.ToolRequest
	for _, call := range strings.Split(asked, " | ") {
		if name, arguments, _ := strings.Cut(strings.TrimSpace(call), " "); name != "" {
			calls = append(calls, sdk.ToolRequest{Name: name, Arguments: arguments})
		}
	}
	ev := s.replied(strings.TrimSpace(text), calls...)
	if s.spec.NeedsRulings && len(calls) > 0 {
		s.policy.rule(ev.Admission)
	}
	return ev
}

// parseObjection reads JUDGE MOST TEXT: a reply that a judge objects to, which may send it back so often.
func (s *script) parseObjection(rest string) core.Event {
	s.Helper()
	words := strings.SplitN(rest, " ", 3)
	ev := s.replied(words[2])
	ev.Objections = []core.Objection{{Judge: words[0], Found: words[2], Nudge: "Not so.", Most: number(s.T, words[1])}}
	return ev
}

// parseAnswer reads CALL [error] [who=NAME] [lane=N] [parent=ID] [source=TYPE] JSON. CALL is the beginning of an id.
func (s *script) parseAnswer(rest string) core.Answered {
	s.Helper()
	head, data, _ := strings.Cut(rest, "{")
	words := strings.Fields(head)
	f := s.sent(words[0])
	ev := s.answer(f, 0, "{"+data)
	hash := ""
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "error":
			ev.Error = true
		case "later":
			ev.Retryable = true
		case "hash":
			hash = value
		case "who":
			ev.Who = value
			ev.EventID += "-" + value
		case "event":
			ev.EventID = value
		case "key":
			ev.Key = value
		case "bad":
			ev.Refused = value
		case "used":
			ev.Tokens = int64(number(s.T, value))
		case "attempt":
			f.Attempt = number(s.T, value)
			ev = s.answer(f, 0, "{"+data)
		case "lane":
			ev = s.answer(f, number(s.T, value), "{"+data)
		case "parent":
			ev.ParentID = value
		case "type":
			ev.Address.Type = value
		default:
			s.Fatalf("answer: unknown option %q", word)
		}
	}
	if f.Type == sdk.TypePermissionRequest && !ev.Error {
		ev.Decision = s.decision(f.Call, hash, ev.Data)
		ev.Rulings = s.policy.plans(s.spec, &s.state, f, ev.Decision)
	}
	return ev
}

// decision is an answer to a permission request; the hash of the arguments is that of the request if none is given.
func (s *script) decision(request, hash string, data json.RawMessage) *sdk.PermissionDecision {
	s.Helper()
	var d sdk.PermissionDecision
	if err := json.Unmarshal(data, &d); err != nil {
		s.Fatal(err)
	}
	d.ArgsHash = hash
	for _, c := range s.state.Calls {
		if c.ID == request && hash == "" {
			d.ArgsHash = c.Permission.ArgsHash
		}
	}
	return &d
}

// sent is the last attempt at the call whose id begins so; p1-0 is the permission request for c1-0, q1-0 its last question.
func (s *script) sent(name string) core.Effect {
	s.Helper()
	prefix, asked := strings.CutPrefix(name, "p")
	if asked {
		prefix = "c" + prefix
	}
	prefix, question := strings.CutPrefix(prefix, "q")
	if question {
		prefix = "c" + prefix
	}
	var last core.Effect
	for i := range s.entries {
		for _, f := range s.entries[i].Effects {
			if f.Kind == core.EffectCall && strings.HasPrefix(f.Call, prefix+"-") && (f.Type == sdk.TypePermissionRequest) == asked && (f.Type == sdk.TypeQuestion) == question {
				last = f
			}
		}
	}
	for _, c := range s.state.Calls {
		if (c.Held+c.Asked != "" || c.Queued) && strings.HasPrefix(c.ID, prefix+"-") && !asked && !question { // it was not sent; the answer is forged
			last = core.Effect{Kind: core.EffectCall, Call: c.ID, Type: c.Type, Domains: c.Domains}
		}
	}
	if last.Call == "" {
		s.Fatalf("no call %s was sent", name)
	}
	return last
}

// startedByCall is the init event of a run that answers a call of another agent.
func startedByCall(message string) core.Started {
	caller := wire.NewRunKey("trip 1")
	call := wire.CallID(caller, wire.InitToken("shop.web", "init-0"), 1, 0, "travel_desk", []byte(`{}`))
	ev := started("trip 1/"+call, message)
	ev.Init = core.Init{
		ID: call, Source: "agentd.in.local.travel_desk.planner", Token: wire.InitToken("", call),
		Reply:        &wire.CallAddress{Domain: "local", Type: "travel_desk", Agent: "planner", Run: caller, Call: call},
		ReplySubject: "trip 1", DelegatedBy: &sdk.Delegation{Agent: "planner", Run: "trip 1", Call: call},
	}
	return ev
}

// offset shows a time as it is after the beginning.
func offset(at int64) string {
	return fmt.Sprintf("+%s", time.Duration(at-epoch)*time.Millisecond)
}

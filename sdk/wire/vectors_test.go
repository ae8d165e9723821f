package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

var update = flag.Bool("update", false, "recompute the answers in testdata from its questions")

const vectorFile = "testdata/wire.json"

// vectors are the questions and answers of testdata/wire.json; docs/wire.md, "Test vectors", explains them to
// implementers in other languages. Fields marked "answer" are what -update recomputes.
type vectors struct {
	Comment string `json:"comment"`
	Runs    []struct {
		Subject   string `json:"subject"`
		Partition string `json:"partition"` // answer
		Token     string `json:"token"`     // answer
	} `json:"runs"`
	Inits []struct {
		Source         string `json:"source"`
		ID             string `json:"id"`
		Token          string `json:"token"`           // answer
		DefaultSubject string `json:"default_subject"` // answer
	} `json:"inits"`
	Terminals []struct {
		Subject string `json:"subject"`
		Source  string `json:"source"`
		InitID  string `json:"init_id"`
		EventID string `json:"event_id"` // answer
	} `json:"terminals"`
	Canonical []struct {
		In  string `json:"in"`
		Out string `json:"out"` // answer
	} `json:"canonical"`
	CanonicalRefused []struct {
		In string `json:"in,omitempty"`
		// Base64 is used for what is not text.
		Base64 string   `json:"in_base64,omitempty"`
		Paths  []string `json:"paths"` // answer
	} `json:"canonical_refused"`
	Calls []struct {
		Subject string `json:"subject"`
		Source  string `json:"source"`
		InitID  string `json:"init_id"`
		Step    int    `json:"step"`
		Index   int    `json:"index"`
		Tool    string `json:"tool"`
		// Args are as a model writes them, not canonical.
		Args string `json:"args"`
		ID   string `json:"id"` // answer
	} `json:"calls"`
	CallEvents []struct {
		EventID string `json:"event_id"`
		Valid   bool   `json:"valid"`             // answer
		Call    string `json:"call,omitempty"`    // answer
		Step    int    `json:"step,omitempty"`    // answer
		Index   int    `json:"index,omitempty"`   // answer
		Attempt int    `json:"attempt,omitempty"` // answer
		Domain  string `json:"domain,omitempty"`  // answer
	} `json:"call_events"`
	Subjects []struct {
		Kind    Kind     `json:"kind"`
		Domain  string   `json:"domain,omitempty"`
		Type    string   `json:"type,omitempty"`
		Agent   string   `json:"agent,omitempty"`
		Run     string   `json:"run,omitempty"`
		Call    string   `json:"call,omitempty"`
		Verb    string   `json:"verb,omitempty"`
		Init    string   `json:"init,omitempty"`
		Digest  string   `json:"digest,omitempty"`
		Reason  sdk.Code `json:"reason,omitempty"`
		Stream  string   `json:"stream,omitempty"`
		Seq     uint64   `json:"seq,omitempty"`
		Subject string   `json:"subject"` // answer
	} `json:"subjects"`
	SubjectsRefused []string `json:"subjects_refused"`
	Replies         []struct {
		Delivered string `json:"delivered"`
		Reply     string `json:"reply"` // answer
		Void      string `json:"void"`  // answer
	} `json:"replies"`
	Units []struct {
		Text       string    `json:"text"`
		Millionths sdk.Units `json:"millionths,string"` // answer
		Written    string    `json:"written"`           // answer
	} `json:"units"`
	Events []struct {
		Name  string      `json:"name"`
		Event vectorEvent `json:"event"`
		Bytes string      `json:"bytes"` // answer
	} `json:"events"`
	Messages []struct {
		Name    string              `json:"name"`
		Headers map[string][]string `json:"headers"`
		Body    string              `json:"body"`
		Event   string              `json:"event"` // answer: what it is encoded as
	} `json:"messages"`
	MessagesRefused []struct {
		Name    string              `json:"name"`
		Headers map[string][]string `json:"headers"`
		Body    string              `json:"body"`
		Paths   []string            `json:"paths"` // answer
	} `json:"messages_refused"`
}

// vectorEvent is an event with its data as text, in which white space is kept.
type vectorEvent struct {
	ID             string         `json:"id"`
	Source         string         `json:"source"`
	Type           string         `json:"type"`
	Subject        string         `json:"subject,omitempty"`
	Time           *time.Time     `json:"time,omitempty"`
	DataSchema     string         `json:"dataschema,omitempty"`
	Data           string         `json:"data_text,omitempty"`
	To             string         `json:"to,omitempty"`
	AccessControl  string         `json:"accesscontrol,omitempty"`
	RedirectTo     string         `json:"redirectto,omitempty"`
	ParentID       string         `json:"parentid,omitempty"`
	ExecutionUnits json.Number    `json:"executionunits,omitempty"`
	Domain         string         `json:"domain,omitempty"`
	Agent          string         `json:"agent,omitempty"`
	TraceParent    string         `json:"traceparent,omitempty"`
	TraceState     string         `json:"tracestate,omitempty"`
	Extensions     map[string]any `json:"extensions,omitempty"`
}

func (v vectorEvent) event(t *testing.T) Event {
	t.Helper()
	e := Event{
		ID: v.ID, Source: v.Source, Type: v.Type, Subject: v.Subject, DataSchema: v.DataSchema, Data: json.RawMessage(v.Data),
		To: v.To, AccessControl: v.AccessControl, RedirectTo: v.RedirectTo, ParentID: v.ParentID, Domain: v.Domain,
		Agent: v.Agent, TraceParent: v.TraceParent, TraceState: v.TraceState, Extensions: v.Extensions,
	}
	if v.Time != nil {
		e.Time = *v.Time
	}
	if v.ExecutionUnits != "" {
		units, err := ParseUnits(v.ExecutionUnits.String())
		if err != nil {
			t.Fatal(err)
		}
		e.ExecutionUnits = units
	}
	return e
}

func TestWireVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	decoder.UseNumber()
	var v vectors
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	answerIDs(t, &v)
	answerSubjects(t, &v)
	answerEvents(t, &v)

	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(vectorFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), out.String()); diff != "" {
		t.Errorf("%s (-file +code):\n%s\nThe wire may not change. For new vectors: go test ./sdk -run TestWireVectors -update",
			vectorFile, diff)
	}
}

func answerIDs(t *testing.T, v *vectors) {
	t.Helper()
	for i := range v.Runs {
		key := NewRunKey(v.Runs[i].Subject)
		v.Runs[i].Partition, v.Runs[i].Token = key.Partition, key.Token
	}
	for i := range v.Inits {
		v.Inits[i].Token = InitToken(v.Inits[i].Source, v.Inits[i].ID)
		v.Inits[i].DefaultSubject = DefaultSubject(v.Inits[i].Token)
	}
	for i, x := range v.Terminals {
		v.Terminals[i].EventID = TerminalID(NewRunKey(x.Subject), InitToken(x.Source, x.InitID))
	}
	for i, x := range v.Canonical {
		out, err := Canonicalize([]byte(x.In))
		if err != nil {
			t.Error(err)
		}
		v.Canonical[i].Out = string(out)
	}
	for i, x := range v.CanonicalRefused {
		in := []byte(x.In)
		if x.Base64 != "" {
			var err error
			if in, err = base64.StdEncoding.DecodeString(x.Base64); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Canonicalize(in)
		v.CanonicalRefused[i].Paths = faultPaths(t, err)
	}
	for i, x := range v.Calls {
		args, err := Canonicalize([]byte(x.Args))
		if err != nil {
			t.Fatal(err)
		}
		v.Calls[i].ID = CallID(NewRunKey(x.Subject), InitToken(x.Source, x.InitID), x.Step, x.Index, x.Tool, args)
	}
	for i := range v.CallEvents {
		x := &v.CallEvents[i]
		ref, ok := ParseCallRef(x.EventID)
		x.Valid, x.Call, x.Step, x.Index, x.Attempt, x.Domain = ok, ref.ID, ref.Step, ref.Index, ref.Attempt, ref.Domain
	}
}

// faultPaths are the paths at which err, which must be a refusal, finds faults.
func faultPaths(t *testing.T, err error) []string {
	t.Helper()
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Code != sdk.CodeInvalidEvent {
		t.Fatalf("error %v, want one with code %s", err, sdk.CodeInvalidEvent)
	}
	paths := []string{}
	for _, f := range e.Faults {
		paths = append(paths, f.Path)
	}
	return paths
}

func answerSubjects(t *testing.T, v *vectors) {
	t.Helper()
	s := DefaultSubjects()
	for i := range v.Subjects {
		x := &v.Subjects[i]
		run := NewRunKey(x.Run)
		call := CallAddress{
			Domain: DomainToken(x.Domain), Type: NameToken(x.Type), Agent: NameToken(x.Agent), Run: run, Call: x.Call,
		}
		build, ok := map[Kind]func() string{
			KindStart:  func() string { return s.Start(x.Agent) },
			KindOut:    func() string { return s.Call(call) },
			KindVoid:   func() string { return s.Void(call) },
			KindIn:     func() string { return s.Reply(call) },
			KindCtl:    func() string { return s.Control(ControlVerb(x.Verb), x.Agent, run) },
			KindDone:   func() string { return s.Done(x.Agent, run, x.Init) },
			KindTimer:  func() string { return s.Timer(x.Agent, run) },
			KindFire:   func() string { return s.Fire(x.Agent, run) },
			KindRun:    func() string { return s.Journal(run) },
			KindBlob:   func() string { return s.Blob(run, x.Digest) },
			KindSpec:   func() string { return s.Spec(x.Digest) },
			KindCold:   func() string { return s.Cold(run) },
			KindStream: func() string { return s.Live(x.Agent, run) },
			KindGet:    func() string { return s.Get(x.Agent) },
			KindDLQ:    func() string { return s.DeadLetter(x.Reason, x.Stream, x.Seq) },
		}[x.Kind]
		if !ok {
			t.Fatalf("subject of unknown kind %q", x.Kind)
		}
		x.Subject = build()
	}
	for _, subject := range v.SubjectsRefused {
		if a, err := s.Parse(subject); err == nil {
			t.Errorf("Parse(%q) = %+v, want a refusal", subject, a)
		}
	}
	for i := range v.Replies {
		a, err := s.Parse(v.Replies[i].Delivered)
		if err != nil {
			t.Fatal(err)
		}
		v.Replies[i].Reply, v.Replies[i].Void = s.Reply(a.Call), s.Void(a.Call)
	}
}

func answerEvents(t *testing.T, v *vectors) {
	t.Helper()
	for i := range v.Units {
		units, err := ParseUnits(v.Units[i].Text)
		if err != nil {
			t.Error(err)
		}
		v.Units[i].Millionths, v.Units[i].Written = units, units.String()
	}
	for i, x := range v.Events {
		encoded, err := x.Event.event(t).Encode()
		if err != nil {
			t.Errorf("%s: %v", x.Name, err)
		}
		v.Events[i].Bytes = string(encoded)
	}
	for i, x := range v.Messages {
		event, err := DecodeEvent(x.Headers, []byte(x.Body))
		if err != nil {
			t.Errorf("%s: %v", x.Name, err)
			continue
		}
		encoded, err := event.Encode()
		if err != nil {
			t.Errorf("%s: %v", x.Name, err)
		}
		v.Messages[i].Event = string(encoded)
	}
	for i, x := range v.MessagesRefused {
		_, err := DecodeEvent(x.Headers, []byte(x.Body))
		v.MessagesRefused[i].Paths = faultPaths(t, err)
	}
}

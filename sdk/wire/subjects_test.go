package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/sdk"
)

var nameGenerator = rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,30}(\.[A-Za-z0-9_-]{1,30}){0,2}`)

// TestSubjects_ParseUndoesEveryBuilder covers the kinds that are consumed; those that are not must be refused.
func TestSubjects_ParseUndoesEveryBuilder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		root := rapid.StringMatching(`[a-z0-9_-]{1,64}`).Draw(t, "root")
		s, err := NewSubjects(root)
		if err != nil || s.Root() != root {
			t.Fatalf("NewSubjects(%q) = %v, %v", root, s, err)
		}
		agent := nameGenerator.Draw(t, "agent")
		if err := CheckName(agent); err != nil {
			t.Fatal(err)
		}
		token, run, init := NameToken(agent), NewRunKey(rapid.String().Draw(t, "subject")), InitToken("s", "i")
		call := CallAddress{
			Domain: DomainToken(rapid.OneOf(rapid.Just(""), nameGenerator).Draw(t, "domain")),
			Type:   NameToken(nameGenerator.Draw(t, "type")), Agent: token, Run: run,
			Call: CallRef{ID: CallID(run, init, 1, 0, "x", nil), Attempt: 3, Domain: "human_interaction"}.EventID(),
		}
		for subject, want := range map[string]Address{
			s.Start(agent):                        {Kind: KindStart, Agent: token},
			s.Start(agent) + ".ann":               {Kind: KindStart, Agent: token, Who: "ann"},
			s.Call(call):                          {Kind: KindOut, Call: call, Agent: token, Run: run},
			s.Void(call):                          {Kind: KindVoid, Call: call, Agent: token, Run: run},
			s.Reply(call):                         {Kind: KindIn, Call: call, Agent: token, Run: run},
			s.Reply(call) + ".ann":                {Kind: KindIn, Call: call, Agent: token, Run: run, Who: "ann"},
			s.Control(ControlCancel, agent, run):  {Kind: KindCtl, Verb: ControlCancel, Agent: token, Run: run},
			s.Control(ControlMessage, agent, run): {Kind: KindCtl, Verb: ControlMessage, Agent: token, Run: run},
			s.Control(ControlCancel, agent, run) + ".ann": {
				Kind: KindCtl, Verb: ControlCancel, Agent: token, Run: run, Who: "ann",
			},
			s.Done(agent, run, init): {Kind: KindDone, Agent: token, Run: run, Init: init},
			s.Fire(agent, run):       {Kind: KindFire, Agent: token, Run: run},
			s.Wake(agent, run):       {Kind: KindWake, Agent: token, Run: run},
			s.Watch(agent, run):      {Kind: KindWatch, Agent: token, Run: run},
			s.Watch(agent, RunKey{}): {Kind: KindWatch, Agent: token},
			s.Watch("", RunKey{}):    {Kind: KindWatch},
		} {
			got, err := s.Parse(subject)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("Parse(%s) (-want +got):\n%s", subject, diff)
			}
			if !strings.HasPrefix(subject, strings.TrimSuffix(s.All(want.Kind), ">")) {
				t.Fatalf("filter %s does not cover %s", s.All(want.Kind), subject)
			}
		}
		for _, subject := range []string{
			s.Timer(agent, run), s.Journal(run), s.Blob(run, "00"), s.Spec("00"), s.Live(agent, run), s.Get(agent),
			s.WatchAsk(), s.DeadLetter(sdk.CodeInvalidEvent, "AGENTD_IN", 7),
		} {
			if a, err := s.Parse(subject); err == nil {
				t.Fatalf("Parse(%s) = %+v, want a refusal", subject, a)
			}
		}
	})
}

func TestSubjects_ReplyReplacesOut(t *testing.T) {
	t.Parallel()
	s := DefaultSubjects()
	a, err := s.Parse("agentd.out.out.out.out." + NewRunKey("out").String() + ".out")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Reply(a.Call), "agentd.in.out.out.out."+NewRunKey("out").String()+".out"; got != want {
		t.Errorf("reply subject %s, want %s", got, want)
	}
}

func TestSubjects_ParseRefuses(t *testing.T) {
	t.Parallel()
	s, run := DefaultSubjects(), NewRunKey("trip")
	key := run.String()
	for _, subject := range []string{
		"", "agentd", "agentd.", "agentd.start", "agentd.start.", "agentd.start.a.b.c", "other.start.a", "agentdx.start.a",
		"agentd.start.*", "agentd.start.>", "agentd.start.a b", "agentd.start.ä", "agentd.start." + strings.Repeat("a", 129),
		"agentd.out.d.t.a." + key, "agentd.out.d.t.a." + key + ".c.who", "agentd.void.d.t.a." + key + ".c.who",
		"agentd.in.d.t.a." + key + ".c.who.more", "agentd.in.d.t.a.000." + run.Token + ".c",
		"agentd.in.d.t.a." + run.Partition + "." + strings.ToUpper(run.Token) + ".c", "agentd.in.d..a." + key + ".c",
		"agentd.ctl.cancel.a", "agentd.done.a." + key, "agentd.done.a." + key + ".i.who",
		"agentd.fire.a." + key + ".x", "agentd.watch.a." + key + ".x", "agentd.watch.a.all." + run.Token, "agentd.watch.a." + run.Partition + ".all",
		"agentd.Start.a", "agentd.in.d.t.a." + key + ".c\n",
	} {
		if a, err := s.Parse(subject); !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) {
			t.Errorf("Parse(%q) = %+v, %v", subject, a, err)
		}
	}
}

func TestNames_Checked(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"", "A", "a.b", "a*", "ä", strings.Repeat("a", 65)} {
		if _, err := NewSubjects(root); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("NewSubjects(%q) = %v", root, err)
		}
	}
	for _, name := range []string{"a", "travel.desk", "A-1.b_c", "a.-b", strings.Repeat("a", 128)} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".a", "a.", "a..b", "-a", "_a", "a b", "a*", "a>", "ä", "a\n", strings.Repeat("a", 129)} {
		if err := CheckName(name); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

func TestCheckDomain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "local", "human.interaction", "r", "r2d2", "ra", "r_2", "xr2", strings.Repeat("a", 64)} {
		if err := CheckDomain(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"r2", "r0", "r99999", "r2-eu", "r10-", ".a", "a b", strings.Repeat("a", 65)} {
		if err := CheckDomain(name); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("CheckDomain(%q) = %v", name, err)
		}
	}
}

// FuzzParseSubject: what parses is spelled in one way only.
func FuzzParseSubject(f *testing.F) {
	s, run := DefaultSubjects(), NewRunKey("trip")
	call := CallAddress{Domain: "local", Type: "book", Agent: "desk", Run: run, Call: "c1-0-" + run.Token}
	for _, seed := range []string{
		s.Start("desk"), s.Call(call), s.Reply(call) + ".ann", s.Void(call), s.Control(ControlCancel, "desk", run) + ".ann",
		s.Done("desk", run, run.Token), s.Fire("desk", run), s.Journal(run), "agentd..", "agentd.in.*.>",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		a, err := s.Parse(subject)
		if err != nil {
			return
		}
		var built string
		switch a.Kind {
		case KindStart:
			built = s.Start(a.Agent)
		case KindOut:
			built = s.Call(a.Call)
		case KindVoid:
			built = s.Void(a.Call)
		case KindIn:
			built = s.Reply(a.Call)
		case KindCtl:
			built = s.Control(a.Verb, a.Agent, a.Run)
		case KindDone:
			built = s.Done(a.Agent, a.Run, a.Init)
		case KindFire:
			built = s.Fire(a.Agent, a.Run)
		default:
			t.Fatalf("Parse(%q) = kind %q", subject, a.Kind)
		}
		if a.Who != "" {
			built += "." + a.Who
		}
		if built != subject {
			t.Fatalf("Parse(%q) is spelled %q", subject, built)
		}
	})
}

// Whatever somebody calls an agent, no subject is longer than servers take, and no agent is called so.
func TestNameToken_OfWhatIsTooLong(t *testing.T) {
	t.Parallel()
	longest, other := NameToken(strings.Repeat("a", 128)), NameToken(strings.Repeat("a", 129))
	if len(longest) != 128 || other == longest || other == NameToken(strings.Repeat("a", 130)) {
		t.Errorf("tokens: %s, %s", longest, other)
	}
	if token := NameToken(strings.Repeat("a", 5000)); !IsToken(token, 128) || CheckName(token) == nil {
		t.Errorf("the token of a name that is too long is %q", token)
	}
}

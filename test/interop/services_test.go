package interop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// wantForecasts are the results of calls for Bern, Oslo and Atlantis.
func wantForecasts(t *testing.T, got []result) {
	t.Helper()
	if len(got) != 3 || got[0].IsError || got[1].IsError || !got[2].IsError {
		t.Fatalf("the model was told %+v", got)
	}
	for i, want := range []string{`"sunny in Bern"`, `"sunny in Oslo"`, `"the weather is unknown in Atlantis"`} {
		if !strings.Contains(got[i].Text, want) {
			t.Errorf("the model was told %s, want %s", got[i].Text, want)
		}
	}
	if want := string(sdk.CodeTool); !strings.Contains(got[2].Text, want) {
		t.Errorf("the model was told %s, want the code %s", got[2].Text, want)
	}
}

func eachProgram(t *testing.T, test func(*testing.T, program, command)) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p, p.command(t))
		})
	}
}

func TestService_AnswersCallsOfAnAgent(t *testing.T) {
	t.Parallel()
	eachProgram(t, func(t *testing.T, p program, c command) {
		w := newWorld(t, p.contract(t), time.Minute, city("Bern"), city("Oslo"), city("Atlantis"))
		for range 3 {
			run(t, c, w.host)
		}
		var runs []harness.Run
		for i := range 3 {
			runs = append(runs, w.start(fmt.Sprintf("trip %d: 50%% of Zürich", i)))
		}
		for _, r := range runs {
			wantForecasts(t, w.results(r))
		}
		w.settled()
		if n := len(w.answers()); n != 9 {
			t.Errorf("there are %d answers, want 9", n)
		}
		if refused := w.log.violations(); len(refused) > 0 {
			t.Errorf("the server refused %q", refused)
		}
		w.NoDeadLetter()
	})
}

// What a service has read and not acknowledged comes again, whatever it had done.
func TestService_KilledInTheMiddleOfACall(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]string{"before it answers": "PUB agentd.in.", "before it acknowledges": "PUB $JS.ACK."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachProgram(t, func(t *testing.T, p program, c command) {
				w := newWorld(t, p.contract(t), time.Minute, city("Bern"))
				w.shorten()
				r := w.start("trip")
				between := newCut(t, w.host, mark)
				first := run(t, c, between.host)
				select {
				case <-between.reached:
				case <-time.After(harness.Patience):
					t.Fatalf("the service never came to %s", mark)
				}
				first.stop()
				run(t, c, w.host)
				got := w.results(r)
				if len(got) != 1 || got[0].IsError || !strings.Contains(got[0].Text, "sunny in Bern") {
					t.Errorf("the model was told %+v", got)
				}
				w.settled()
				if n := w.consumerInfo().Delivered.Consumer; n < 2 {
					t.Errorf("the call was delivered %d times, want at least 2", n)
				}
				if n := len(w.answers()); n != 1 {
					t.Errorf("there are %d answers, want 1", n)
				}
				w.NoDeadLetter()
			})
		})
	}
}

// A service can reach nothing but its own calls, whatever an event tells it.
func TestPermissions_OfAServiceAreItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute, city("Bern"))
	refused := make(chan error, 1)
	nc, err := nats.Connect("nats://weather:cold@"+w.host,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := w.start("trip")
	call := w.Call(w.contract.Type)
	subjects, own := w.Conn().Subjects(), w.State(r).Calls[0].ID
	person := wire.CallAddress{
		Domain: wire.DomainToken(sdk.HumanDomain), Type: wire.NameToken(sdk.TypeQuestion), Agent: "desk", Run: r.Key, Call: own,
	}
	for _, subject := range []string{
		subjects.Start("desk"), call.Subject, subjects.Reply(person), subjects.Control(wire.ControlCancel, "desk", r.Key),
		subjects.Done("desk", r.Key, r.Init), subjects.Journal(r.Key), subjects.Fire("desk", r.Key), subjects.Get("desk"),
		strings.Replace(call.Subject, ".out.", ".void.", 1), "agentd.in.local.weather_other.desk.253.run.call",
	} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !strings.Contains(err.Error(), subject) {
				t.Errorf("%s: got %v", subject, err)
			}
		case <-time.After(harness.Patience):
			t.Fatalf("nobody refused %s", subject)
		}
	}
	call.Answer("weather.forecast.done", map[string]string{"text": "mine"})
	if got := w.results(r); len(got) != 1 || got[0].Text != `{"text":"mine"}` {
		t.Errorf("the model was told %+v", got)
	}
}

package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/internal/harness"
	"agentd/test/proxy"
)

// A service says where it is connected, what it serves, and why no calls come: each once, however often it tries.
func TestSDKs_SayOnceWhyNoCallsCome(t *testing.T) {
	t.Parallel()
	for name, sdk := range map[string]struct {
		service func(*testing.T) command
		// pulls is how many there are at once.
		pulls int
		lost  string
	}{
		"python": {pythonSDKCommand, 1, "the connection to NATS is lost: the server closed it"},
		"node":   {nodeSDKCommand, 16, "the connection to NATS is lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newServer(t, docContract(t))
			between, err := proxy.New(t.Context(), w.host)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(between.Close)
			c := sdk.service(t)
			c.env = append(c.env, "NATS_USER=worker", "NATS_PASSWORD=hot")
			s := said{w, run(t, c, between.Address())}

			s.afterRequests("INFO", 6, func() {}) // three times of two streams
			s.times(1, "connected to NATS at "+between.Address())
			s.times(1, "the consumer svc_local_weather_forecast does not exist: run agentd provision")
			s.times(0, "serving weather.forecast")
			w.startAgent(time.Minute, city("Bern"))
			s.eventually("serving weather.forecast")
			w.results(w.start("first"))

			between.Cut(func() bool { return true })
			w.results(w.start("second"))
			s.times(1, sdk.lost)
			s.times(2, "connected to NATS at "+between.Address())
			s.times(0, "no calls of the consumer") // the new connection is asked for them at once

			consumer := w.consumerInfo().Config
			s.afterRequests("INFO", 3*sdk.pulls, s.removeConsumer)
			s.times(1, "the consumer AGENTD_OUT.svc_local_weather_forecast does not exist: run agentd provision")
			if _, err := w.Conn().JetStream().CreateConsumer(t.Context(), "AGENTD_OUT", consumer); err != nil {
				t.Fatal(err)
			}
			s.eventually("calls of the consumer AGENTD_OUT.svc_local_weather_forecast come again")
			s.times(1, "come again")
			s.times(1, "serving weather.forecast")
		})
	}
}

// said is what a program has said.
type said struct {
	w *world
	p *process
}

// times fails the test unless the program says a text so often. What it has said by now may be on its way.
func (s said) times(want int, text string) {
	s.w.t.Helper()
	count := func() int { return strings.Count(s.p.log.String(), text) }
	s.w.eventually(text, func() bool { return count() >= want })
	if got := count(); got != want {
		s.w.t.Errorf("%q is said %d times, want %d", text, got, want)
	}
}

func (s said) eventually(text string) {
	s.w.t.Helper()
	s.w.eventually(text, func() bool { return strings.Contains(s.p.log.String(), text) })
}

// afterRequests does something, and waits until somebody has asked so often since then about consumers.
func (s said) afterRequests(what string, n int, do func()) {
	t := s.w.t
	t.Helper()
	nc, err := nats.Connect("nats://worker:hot@" + s.w.host)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked, err := nc.SubscribeSync("$JS.API.CONSUMER." + what + ".>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	do()
	for range n {
		if _, err := asked.NextMsg(harness.Patience); err != nil {
			t.Fatal(err)
		}
	}
}

func (s said) removeConsumer() {
	s.w.t.Helper()
	js := s.w.Conn().JetStream()
	if err := js.DeleteConsumer(s.w.t.Context(), "AGENTD_OUT", s.w.consumer()); err != nil {
		s.w.t.Fatal(err)
	}
}

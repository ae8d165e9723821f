package rebuild

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a server whose streams are as of a plan that is not asynchronous, and options that rebuild them so that they are.
type site struct {
	*testing.T
	conn *broker.Conn
	Options
	told []string
}

func start(t *testing.T) *site {
	t.Helper()
	conn := brokertest.Connect(t, broker.ConnectOptions{InProcess: brokertest.Server(t, embedded.Options{})})
	s := &site{T: t, conn: conn}
	plan := provision.Plan{
		AckWait: time.Hour, PersistMode: streams.PersistDefault, Agents: []provision.Agent{{Name: "desk", Type: "desk"}}, Services: []provision.Service{{Type: "calc.add"}},
	}
	_, err := provision.Apply(t.Context(), conn, plan)
	s.check(err)
	plan.PersistMode = streams.PersistAsync
	s.Options = Options{
		Conn: conn, Plan: plan, Zones: streams.Rebuildable, Dir: filepath.Join(t.TempDir(), "backups"),
		Tell: func(what string) { s.told = append(s.told, what) },
	}
	return s
}

func (s *site) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// call publishes a call, which is its own data.
func (s *site) call(name string) {
	s.Helper()
	subject := s.conn.Subjects().Call(wire.CallAddress{
		Domain: wire.DomainToken(""), Type: wire.NameToken("calc.add"), Agent: "desk", Run: wire.NewRunKey("trip"), Call: name,
	})
	_, err := s.conn.JetStream().Publish(s.Context(), subject, []byte(name))
	s.check(err)
}

// rebuild rebuilds all streams, and returns which.
func (s *site) rebuild() string {
	s.Helper()
	changes, err := Streams(s.Context(), s.Options)
	s.check(err)
	var names []string
	for _, c := range changes {
		names = append(names, c.Action+" "+c.Name)
	}
	return strings.Join(names, ", ")
}

// interrupt has an attempt end when it tells something that begins so.
func (s *site) interrupt(at string) {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	defer stop()
	o := s.Options
	o.Tell = func(what string) {
		if strings.HasPrefix(what, at) {
			stop()
		}
	}
	if _, err := Streams(ctx, o); err == nil {
		s.Fatalf("nobody said %q", at)
	}
}

const allThree = "rebuilt AGENTD_OUT, rebuilt AGENTD_DONE, rebuilt AGENTD_TMR"

// called is what the first stream has: the data under each sequence.
func (s *site) called() string {
	s.Helper()
	stream, err := s.conn.JetStream().Stream(s.Context(), "AGENTD_OUT")
	s.check(err)
	var all []string
	for at := stream.CachedInfo().State.FirstSeq; at <= stream.CachedInfo().State.LastSeq; at++ {
		m, err := stream.GetMsg(s.Context(), at)
		s.check(err)
		all = append(all, fmt.Sprint(at, " ", string(m.Data)))
	}
	return strings.Join(all, ", ")
}

func (s *site) persistence() string {
	s.Helper()
	var all []string
	for _, name := range []string{"AGENTD_START", "AGENTD_IN", "AGENTD_OUT", "AGENTD_DONE", "AGENTD_TMR", "AGENTD_RUN"} {
		stream, err := s.conn.JetStream().Stream(s.Context(), name)
		s.check(err)
		all = append(all, strings.ToLower(stream.CachedInfo().Config.PersistMode.String()))
	}
	return strings.Join(all, " ")
}

// Messages keep their sequences and headers, and consumers what was delivered and acknowledged, there and back.
func TestStreams_KeepWhatIsInThem(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 5 {
		s.call(fmt.Sprint("call", i))
	}
	consumer, err := s.conn.JetStream().Consumer(t.Context(), "AGENTD_OUT", streams.ServiceConsumer("", "calc.add").Name)
	s.check(err)
	batch, err := consumer.FetchNoWait(3)
	s.check(err)
	var inHand jetstream.Msg
	for m := range batch.Messages() {
		if inHand = m; string(m.Data()) != "call2" {
			s.check(m.DoubleAck(t.Context()))
		}
	}
	position := func() string {
		info, err := consumer.Info(t.Context())
		s.check(err)
		return fmt.Sprint("delivered ", info.Delivered.Stream, ", settled ", info.AckFloor.Stream, ", in hand ", info.NumAckPending, ", waiting ", info.NumPending)
	}
	want := "delivered 3, settled 2, in hand 1, waiting 2"
	if got := position(); got != want {
		t.Fatalf("before, the consumer has %s, want %s", got, want)
	}
	for _, mode := range []streams.PersistMode{streams.PersistAsync, streams.PersistDefault} {
		s.Plan.PersistMode = mode
		if got := s.rebuild(); got != allThree {
			t.Errorf("it says %s", got)
		}
		if got, want := s.persistence(), fmt.Sprintf("default default %s %s %s default", mode, mode, mode); got != want {
			t.Errorf("the streams are %s", got)
		}
		if got := s.called(); got != "1 call0, 2 call1, 3 call2, 4 call3, 5 call4" {
			t.Errorf("the stream has %s", got)
		}
		if got := position(); got != want {
			t.Errorf("the consumer has %s, want %s", got, want)
		}
		if left, err := os.ReadDir(s.Dir); !os.IsNotExist(err) {
			t.Errorf("backups are left: %v, %v", left, err)
		}
		if got := s.rebuild(); got != "" {
			t.Errorf("again, it says %s", got)
		}
		if changes, err := provision.Apply(t.Context(), s.conn, s.Plan); err != nil || len(changes) != 0 {
			t.Errorf("afterwards, provisioning changes %v, %v", changes, err)
		}
	}
	// Who has a call in hand settles it under the same sequence.
	s.check(inHand.DoubleAck(t.Context()))
	if got := position(); got != "delivered 3, settled 3, in hand 0, waiting 2" {
		t.Errorf("after the last ack the consumer has %s", got)
	}
}

// What somebody publishes after a stream was backed up is in it all the same, and the next worker looks whether more is missing.
func TestStreams_MissNothingThatIsPublishedMeanwhile(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.check(s.conn.NoteRefilled(t.Context(), "desk", s.conn.Server()))
	s.call("call")
	times := 0
	s.Tell = func(what string) {
		if strings.HasPrefix(what, "backed up AGENTD_OUT") {
			if times++; times == 1 {
				s.call("late")
			}
		}
	}
	if got := s.rebuild(); got != allThree || s.called() != "1 call, 2 late" || times != 2 {
		t.Errorf("it says %s after %d backups, and the stream has %s", got, times, s.called())
	}
	if noted, err := s.conn.Refilled(t.Context(), "desk"); err != nil || noted.Server != "" {
		t.Errorf("the streams were refilled for %q, %v", noted.Server, err)
	}
}

// What is due while the stream is away is due when it is there.
func TestStreams_TimersFireAfterwards(t *testing.T) {
	t.Parallel()
	s := start(t)
	run := wire.NewRunKey("trip")
	s.check(s.conn.ArmTimer(t.Context(), "desk", run, s.conn.Now()+1500))
	s.rebuild()
	fired := s.conn.Subjects().Fire("desk", run)
	for _, err := s.conn.Last(t.Context(), fired); err != nil; _, err = s.conn.Last(t.Context(), fired) {
		if t.Context().Err() != nil {
			t.Fatal("it never fires")
		}
	}
}

// Whenever an attempt ends, the next one goes on.
func TestStreams_GoOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"backing up AGENTD_OUT", "restoring AGENTD_OUT", "backing up AGENTD_DONE", "restoring AGENTD_DONE", "restoring AGENTD_TMR"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.call("call")
			s.interrupt(at)
			planned, err := Planned(t.Context(), s.Options)
			s.check(err)
			var names []string
			for _, c := range planned {
				names = append(names, "rebuilt "+c.Name)
			}
			if got, want := s.rebuild(), strings.Join(names, ", "); got != want || !strings.HasSuffix(allThree, got) {
				t.Errorf("the next attempt says %s, where %s was planned", got, want)
			}
			if got := s.persistence(); got != "default default async async async default" {
				t.Errorf("the streams are %s", got)
			}
			if got := s.called(); got != "1 call" {
				t.Errorf("the stream has %s", got)
			}
		})
	}
}

// A backup of before is none of a stream that is still there, and one that was restored is only removed.
func TestStreams_KnowWhichBackupsAreOver(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.call("call")
	s.interrupt("restoring AGENTD_OUT")
	older := filepath.Join(t.TempDir(), "older")
	s.check(os.CopyFS(older, os.DirFS(s.Dir)))
	s.rebuild()

	s.check(os.CopyFS(s.Dir, os.DirFS(older))) // as if the process had ended before it removed it
	if got := s.rebuild(); got != "" || s.called() != "1 call" {
		t.Errorf("it says %q, and the stream has %s", got, s.called())
	}

	s.call("another")
	s.check(os.CopyFS(s.Dir, os.DirFS(older)))
	s.Plan.PersistMode = streams.PersistDefault
	if got := s.rebuild(); got != allThree || s.called() != "1 call, 2 another" {
		t.Errorf("it says %q, and the stream has %s", got, s.called())
	}
}

// Somebody provisions while a backup waits to be restored, with the settings that are to be or those that were: nothing is thrown away.
func TestStreams_SayThatSomebodyElseMadeThem(t *testing.T) {
	t.Parallel()
	for _, mode := range []streams.PersistMode{streams.PersistAsync, streams.PersistDefault} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.call("call")
			s.interrupt("restoring AGENTD_OUT")
			plan := s.Plan
			plan.PersistMode = mode
			_, err := provision.Apply(t.Context(), s.conn, plan)
			s.check(err)
			_, err = Streams(t.Context(), s.Options)
			if err == nil || !strings.Contains(err.Error(), "AGENTD_OUT was made anew by somebody else") {
				t.Fatalf("it says %v", err)
			}
			s.check(remove(t.Context(), s.conn.JetStream(), "AGENTD_OUT"))
			if got := s.rebuild(); got != allThree || s.called() != "1 call" {
				t.Errorf("it says %q, and the stream has %s", got, s.called())
			}
		})
	}
}

// While a worker reads nothing is touched; one that stops is waited for.
func TestStreams_WaitUntilNoWorkerReads(t *testing.T) {
	t.Parallel()
	s := start(t)
	ref := streams.AgentConsumers("desk")[0]
	request := func() (stop func()) {
		nc := s.conn.JetStream().Conn()
		sub, err := nc.SubscribeSync(nats.NewInbox())
		s.check(err)
		s.check(nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.AGENTD_START."+ref.Name, sub.Subject, []byte(`{"batch":1,"expires":600000000000}`)))
		return func() { s.check(sub.Unsubscribe()) }
	}
	stop := request()
	o := s.Options
	o.Patience = time.Nanosecond
	if _, err := Streams(t.Context(), o); err == nil || !strings.Contains(err.Error(), ref.Name+": stop all workers") {
		t.Errorf("while a worker reads: %v", err)
	}
	if got := s.persistence(); strings.Contains(got, "async") {
		t.Errorf("the streams are %s", got)
	}
	s.Tell = func(what string) {
		if strings.HasPrefix(what, "waiting until no worker reads") {
			stop()
		}
	}
	if got := s.rebuild(); got != allThree {
		t.Errorf("it says %s", got)
	}
}

func TestStreams_AreOnlyThoseThatJournalsFill(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.Zones = []streams.Zone{streams.Run}
	if _, err := Streams(t.Context(), s.Options); err == nil || !strings.Contains(err.Error(), "AGENTD_RUN is not one that is rebuilt: these are [OUT DONE TMR]") {
		t.Errorf("it says %v", err)
	}
	if !cmp.Equal(s.told, []string(nil)) {
		t.Errorf("it says %v", s.told)
	}
}

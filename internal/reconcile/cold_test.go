package reconcile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"agentd/internal/core"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/internal/state/redistest"
	"agentd/internal/worker"
	"agentd/sdk"
)

// leaving has the store in a redis-server that journals can leave, as a worker opens it.
func leaving(r *rig) {
	r.cold = true
	r.redis = redistest.StartServer(r.t)
	store, err := worker.OpenStore(r.context(), r.conn, worker.StoreOptions{RedisURL: r.redis.URL()})
	r.check("open store", err)
	r.t.Cleanup(func() { r.check("close store", store.Close()) })
	r.store = store
}

// hot is how long journals stay in Redis.
const hot = 4 * time.Hour

// cooling makes a pass in a time from now, that has journals leave.
func (r *rig) cooling(in time.Duration, change ...func(*reconcile.Options)) (reconcile.Report, []reconcile.Finding) {
	r.t.Helper()
	return r.pass(append([]func(*reconcile.Options){func(o *reconcile.Options) {
		o.Agents, o.Hot, o.Now = nil, hot, func() time.Time { return r.now().Add(in) }
	}}, change...)...)
}

// archived makes a pass that must find nothing, and archive and thin so many journals.
func (r *rig) archived(in time.Duration, archived, thinned int) {
	r.t.Helper()
	report, all := r.cooling(in)
	if len(all) > 0 || report.Archived != archived || report.Thinned != thinned {
		r.t.Errorf("in %s: %+v, %+v, want %d archived and %d thinned", in, report, all, archived, thinned)
	}
}

// memory is what Redis needs for a run.
func (r *rig) memory(b begun) int64 {
	r.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	defer func() { r.check("close", c.Close()) }()
	keys, err := c.Keys(r.context(), fmt.Sprintf("agentd:{p%s}:*:%s*", b.key.Partition, b.key.Token)).Result()
	r.check("list keys", err)
	var all int64
	for _, key := range keys {
		n, err := c.MemoryUsage(r.context(), key, 0).Result()
		r.check("weigh "+key, err)
		all += n
	}
	return all
}

// archive is the message of a run's archive; nil is that there is none.
func (r *rig) archive(b begun) *jetstream.RawStreamMsg {
	r.t.Helper()
	subject := r.conn.Subjects().Cold(b.key)
	m, err := r.stream(subject).GetLastMsgForSubject(r.context(), subject)
	if err != nil {
		return nil
	}
	return m
}

// read is all that anybody reads of a run's journal.
func (r *rig) read(b begun) string {
	r.t.Helper()
	records, err := r.store.Entries(r.context(), b.key, runner.Version{})
	r.check("read entries", err)
	var text bytes.Buffer
	for _, record := range records {
		fmt.Fprintf(&text, "%d %s %s\n", record.Rev, record.Etag, record.Data)
	}
	for from := range records {
		part, err := r.store.Part(r.context(), b.key, uint64(from+1), 2)
		r.check("read part", err)
		if diff := cmp.Diff(records[from:min(from+2, len(records))], part); diff != "" {
			r.t.Errorf("part from %d (-want +got):\n%s", from+1, diff)
		}
	}
	entries := r.journal(b)
	all, err := json.Marshal(entries)
	r.check("encode", err)
	text.Write(all)
	return text.String()
}

// threeCalls takes a run through several rounds to its end.
func (r *rig) threeCalls() begun {
	r.t.Helper()
	b := r.begin("add add add say")
	for i := range 3 {
		r.waiting(b, i+1)
		r.answer(r.call(b))
	}
	r.done(b)
	r.settled()
	return b
}

// TestRun_JournalsLeaveRedis takes a run through its life and a waiting one beside it.
func TestRun_JournalsLeaveRedis(t *testing.T) {
	t.Parallel()
	r := start(t, leaving)
	done, waiting := r.threeCalls(), r.begin("add")
	r.waiting(waiting, 1)
	r.settled()
	whole, kept, before := r.read(done), r.read(waiting), r.memory(done)

	r.archived(hot-time.Hour, 0, 0)
	if report, _ := r.cooling(hot+time.Minute, func(o *reconcile.Options) { o.DryRun = true }); report.Archived != 1 || r.archive(done) != nil {
		t.Errorf("a dry run: %+v", report)
	}
	r.archived(hot+time.Minute, 1, 0)
	r.archived(hot+30*time.Minute, 0, 0)
	if got := r.memory(done); got < before {
		t.Errorf("%d bytes are left of %d before the archive is an hour old", got, before)
	}
	if report, _ := r.cooling(hot+2*time.Hour, func(o *reconcile.Options) { o.DryRun = true }); report.Thinned != 1 || r.memory(done) < before {
		t.Errorf("a dry run: %+v", report)
	}
	r.archived(hot+2*time.Hour, 0, 1)
	r.archived(hot+20*time.Hour, 0, 0)

	after, archive := r.memory(done), r.archive(done)
	if archive == nil {
		t.Fatal("nothing was archived")
	}
	t.Logf("%d bytes in Redis before, %d after, %d in the archive", before, after, len(archive.Data))
	if after*3 > before {
		t.Errorf("%d bytes are left of %d", after, before)
	}
	if diff := cmp.Diff(whole, r.read(done)); diff != "" {
		t.Errorf("the journal (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(kept, r.read(waiting)); diff != "" {
		t.Errorf("the waiting run was touched:\n%s", diff)
	}
	if r.archive(waiting) != nil {
		t.Error("the waiting run was archived")
	}

	if report := r.after(31 * day); report.Purged != 1 {
		t.Errorf("after 31 days: %+v", report)
	}
	if r.archive(done) != nil {
		t.Error("the archive outlived the history")
	}
	if entries := r.journal(done); len(entries) != 1 || entries[0].Head.Purged == nil {
		t.Errorf("%d entries are left", len(entries))
	}
	r.archived(60*day, 0, 0)
	if report := r.after(200 * day); report.Removed != 1 {
		t.Errorf("after 200 days: %+v", report)
	}
	if got := r.memory(done); got != 0 {
		t.Errorf("%d bytes are left", got)
	}
}

// TestRun_RunWhoseJournalHasLeftIsTakenUpAgain: what was archived is in Redis again, and leaves again.
func TestRun_RunWhoseJournalHasLeftIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	r := start(t, leaving, func(r *rig) { r.agents[0].Spec.Limits.DeadlineMillis = generation.Milliseconds() })
	first := r.begin("add")
	r.waiting(first, 1)
	if code := r.done(first); code != sdk.CodeDeadline {
		t.Fatalf("the first generation ended with %q", code)
	}
	r.settled()
	r.archived(hot+time.Minute, 1, 0)
	r.archived(hot+2*time.Hour, 0, 1)
	whole := r.journal(first)

	second := r.retry(first, "again")
	r.await("the call is made again", func() bool { h := r.head(first); return h.Status == core.StatusWaiting && h.Retry != nil })
	h := r.head(first)
	r.answer(h.Calls[0].Addresses(&h)[0])
	if code := r.done(second); code != "" {
		t.Fatalf("the second generation ended with %q", code)
	}
	r.settled()
	entries := r.journal(first)
	if diff := cmp.Diff(whole, entries[:len(whole)]); diff != "" {
		t.Errorf("the first generation (-before +after):\n%s", diff)
	}
	older := r.archive(first).Sequence
	r.archived(hot+3*time.Hour, 1, 0)
	r.archived(hot+5*time.Hour, 0, 1)
	if diff := cmp.Diff(entries, r.journal(first)); diff != "" {
		t.Errorf("the journal (-before +after):\n%s", diff)
	}
	if newer := r.archive(first).Sequence; newer == older {
		t.Error("the archive is the one of before")
	}
}

// TestRun_RunWhoseEndIsLostStaysInRedis until it is published again.
func TestRun_RunWhoseEndIsLostStaysInRedis(t *testing.T) {
	t.Parallel()
	r := start(t, leaving)
	b := r.threeCalls()
	r.delete(r.conn.Subjects().Done(b.agent, b.key, b.init))
	mine := func(o *reconcile.Options) { o.Agents = r.options().Agents }
	report, all := r.cooling(hot+time.Minute, mine)
	if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.TerminalLost: 1}, kinds(all)); diff != "" || report.Archived != 0 {
		t.Errorf("%+v, findings (-want +got):\n%s", report, diff)
	}
	if report, all := r.cooling(hot+time.Minute, mine); report.Archived != 1 || len(all) != 0 {
		t.Errorf("the next pass: %+v, %+v", report, all)
	}
}

// TestRun_WithoutAStreamForArchivesJournalsStay, and one finding says so.
func TestRun_WithoutAStreamForArchivesJournalsStay(t *testing.T) {
	t.Parallel()
	r := start(t, leaving, func(r *rig) { r.cold = false })
	a, b := r.threeCalls(), r.threeCalls()
	whole := []string{r.read(a), r.read(b)}
	for range 2 {
		report, all := r.cooling(hot + time.Minute)
		if len(all) != 1 || all[0].Kind != reconcile.HistoryHot || all[0].What != "AGENTD_COLD" || report.Archived != 0 {
			t.Errorf("%+v, %+v", report, all)
		}
	}
	if got := []string{r.read(a), r.read(b)}; !slices.Equal(got, whole) {
		t.Error("the journals are not as before")
	}
}

// TestRun_LostArchiveIsFoundWhenItsRunIsRead: what is left of the run stays, and other runs are not touched.
func TestRun_LostArchiveIsFoundWhenItsRunIsRead(t *testing.T) {
	t.Parallel()
	r := start(t, leaving)
	lost, other := r.threeCalls(), r.threeCalls()
	r.archived(hot+time.Minute, 2, 0)
	r.archived(hot+2*time.Hour, 0, 2)
	whole := r.read(other)
	stream := r.stream(r.conn.Subjects().Cold(lost.key))
	r.check("purge", stream.Purge(r.context(), jetstream.WithPurgeSubject(r.conn.Subjects().Cold(lost.key))))
	for _, err := range []error{second(r.worker.Runner().Journal(r.context(), lost.key)), r.worker.Runner().Repair(r.context(), lost.agent, lost.key)} {
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte("its archive is gone: message ")) {
			t.Errorf("read: %v", err)
		}
	}
	if h := r.head(lost); h.Status != core.StatusDone {
		t.Errorf("the run is %s", h.Status)
	}
	r.archived(hot+20*time.Hour, 0, 0)
	if diff := cmp.Diff(whole, r.read(other)); diff != "" {
		t.Errorf("the other run (-before +after):\n%s", diff)
	}
	if report := r.after(31 * day); report.Purged != 2 {
		t.Errorf("after 31 days: %+v", report)
	}
}

// TestPurge_FinishesWhatWasInterrupted, and so does a pass: the archive of a run that has a tombstone already.
func TestPurge_FinishesWhatWasInterrupted(t *testing.T) {
	t.Parallel()
	r := start(t, leaving)
	b := r.threeCalls()
	c := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	defer func() { r.check("close", c.Close()) }()
	for what, finish := range map[string]func(){
		"again":     func() { r.check("purge", reconcile.Purge(r.context(), r.conn, r.store, b.key)) },
		"by a pass": func() { r.archived(time.Hour, 0, 0) },
	} {
		r.check("purge", reconcile.Purge(r.context(), r.conn, r.store, b.key))
		ack, err := r.conn.JetStream().Publish(r.context(), r.conn.Subjects().Cold(b.key), []byte("an archive"))
		r.check("publish", err)
		head := fmt.Sprintf("agentd:{p%s}:h:%s", b.key.Partition, b.key.Token)
		r.check("note", c.HSet(r.context(), head, "cold", fmt.Sprintf("etag %d 1", ack.Sequence)).Err())
		finish()
		if r.archive(b) != nil || c.HExists(r.context(), head, "cold").Val() {
			t.Errorf("%s: the archive is left", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestRun_EmptiedRedisKeepsArchives: they are all that there is of runs, whatever a pass finds.
func TestRun_EmptiedRedisKeepsArchives(t *testing.T) {
	t.Parallel()
	r := start(t, leaving)
	b := r.threeCalls()
	r.archived(hot+time.Minute, 1, 0)
	r.archived(hot+2*time.Hour, 0, 1)
	sequence := r.archive(b).Sequence
	r.redis.Wipe()
	r.await("Redis", func() bool { _, _, err := r.store.Runs(r.context(), "", 1); return err == nil })
	r.storeLost()
	for _, in := range []time.Duration{hot + 3*time.Hour, 31 * day, 200 * day} {
		r.cooling(in)
	}
	if m := r.archive(b); m == nil || m.Sequence != sequence {
		t.Error("the archive is gone")
	}
}

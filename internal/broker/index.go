package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/days"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The documents of the index of runs. What is in them is not the broker's business: they may be sealed.

// headerRevision is the revision of the entry that a document was made from.
const headerRevision = "Agentd-Revision"

// IndexedRun is a document as it is stored. Data is empty of a run whose document was withdrawn.
type IndexedRun struct {
	Run      wire.RunKey
	Revision uint64
	Data     []byte
	// Sequence is its place in the stream, and At when it was stored, in Unix milliseconds.
	Sequence uint64
	At       int64
}

// WithdrawnFor is how long it is said that a document is withdrawn: whoever has not read for longer reads the index from the beginning.
const WithdrawnFor = 7 * days.Day

func (c *Conn) indexFilter(partition string) string {
	return c.subjects.Index(wire.RunKey{Partition: partition, Token: "*"})
}

// Indexes reports whether there is an index of runs.
func (c *Conn) Indexes(ctx context.Context) (bool, error) { return c.HasStream(ctx, streams.Index) }

// PublishIndexed puts a document in the place of the run's one before; without Data it withdraws it. It does not wait: a document that is lost is found
// by reconciliation.
func (c *Conn) PublishIndexed(i IndexedRun) error { return c.publishIndexed(i, nats.Header{}) }

// ReplaceIndexed is PublishIndexed where the run's document is still the one that Indexed told, if any: what others have published since stays.
func (c *Conn) ReplaceIndexed(was, i IndexedRun) error {
	return c.publishIndexed(i, nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(was.Sequence, 10)}})
}

func (c *Conn) publishIndexed(i IndexedRun, header nats.Header) error {
	m := &nats.Msg{Subject: c.subjects.Index(i.Run), Data: i.Data, Header: header}
	m.Header.Set(headerRevision, strconv.FormatUint(i.Revision, 10))
	if len(i.Data) == 0 {
		m.Header.Set(jetstream.MsgTTLHeader, WithdrawnFor.String())
	}
	if err := c.nc.PublishMsg(m); err != nil {
		return fmt.Errorf("publish the index document of run %s: %w", i.Run, err)
	}
	return nil
}

// IndexedRevisions are the revisions that the documents of a partition tell of, by the runs' tokens.
func (c *Conn) IndexedRevisions(ctx context.Context, partition string) (map[string]uint64, error) {
	revisions := map[string]uint64{}
	err := c.upToNow(ctx, streams.Index, c.indexFilter(partition), true, func(m jetstream.Msg) {
		if i, is := c.indexedIn(m.Subject(), m.Headers(), nil); is {
			revisions[i.Run.Token] = i.Revision
		}
	})
	return revisions, err
}

// Indexed is the document of a run; one without a revision where it has none. That this user may not read it is said at once.
func (c *Conn) Indexed(ctx context.Context, run wire.RunKey) (IndexedRun, error) {
	stream := streams.Name(c.subjects, streams.Index)
	ctx, explain, stop := c.refusals.until(ctx, "$JS.API.STREAM.MSG.GET."+stream)
	defer stop()
	m, err := c.last(ctx, stream, c.subjects.Index(run))
	if errors.Is(err, ErrNotStored) {
		return IndexedRun{Run: run}, nil
	}
	if err != nil {
		return IndexedRun{}, fmt.Errorf("read the index document of run %s: %w", run, explain(err))
	}
	i, _ := c.indexedIn(m.Subject, m.Headers, m.Data)
	i.Sequence, i.At = m.Sequence, m.At
	return i, nil
}

// TailIndex calls handle with every document from a sequence on, in order, until ctx ends, handle fails, or the stream is another
// (ErrOtherStream). behind is how many are stored after it.
func (c *Conn) TailIndex(ctx context.Context, from uint64, handle func(i IndexedRun, behind uint64) error) error {
	var failed error
	err := c.readOn(ctx, streams.Name(c.subjects, streams.Index), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{c.indexFilter("*")}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(from, 1),
	}, nil, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
		if i, is := c.indexedIn(m.Subject(), m.Headers(), m.Data()); is {
			i.Sequence, i.At = meta.Sequence.Stream, meta.Timestamp.UnixMilli()
			failed = handle(i, meta.NumPending)
		}
		return failed == nil
	})
	return errors.Join(failed, err)
}

// IndexState is that of the stream of documents.
type IndexState struct {
	Bounds
	// Late says that there may have been runs when it was made: they come into it with reconciliation.
	Late bool
}

// Lacks reports whether runs may be missing, where reconciliation has a pass in that time; 0 is never.
func (s IndexState) Lacks(every time.Duration, now int64) bool {
	return s.Late && (every == 0 || time.UnixMilli(now).Sub(time.Unix(0, s.Created)) < 2*every)
}

// IndexState looks at the stream of documents. Where there is none, the error has sdk.CodeConfig.
func (c *Conn) IndexState(ctx context.Context) (IndexState, error) {
	s, err := c.js.Stream(ctx, streams.Name(c.subjects, streams.Index))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return IndexState{}, sdk.Errorf(sdk.CodeConfig, "there is no index of runs; make it with: agentd provision --index")
	}
	if err != nil {
		return IndexState{}, fmt.Errorf("look at the index of runs: %w", err)
	}
	state := IndexState{Bounds: bounds(s)}
	starts, err := c.js.Stream(ctx, streams.Name(c.subjects, streams.Start))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return state, nil
	}
	if err != nil {
		return IndexState{}, fmt.Errorf("look at the stream of init events: %w", err)
	}
	first := starts.CachedInfo().State
	state.Late = first.FirstSeq > 1 || first.Msgs > 0 && first.FirstTime.UnixNano() < state.Created
	return state, nil
}

func (c *Conn) indexedIn(subject string, headers map[string][]string, data []byte) (IndexedRun, bool) {
	tokens := strings.Split(strings.TrimPrefix(subject, c.subjects.Root()+"."+string(wire.KindIndex)+"."), ".")
	revision, err := strconv.ParseUint(nats.Header(headers).Get(headerRevision), 10, 64)
	if len(tokens) != 2 || err != nil {
		return IndexedRun{}, false
	}
	return IndexedRun{Run: wire.RunKey{Partition: tokens[0], Token: tokens[1]}, Revision: revision, Data: data}, true
}

// AskIndex asks whoever answers questions to the index of runs. known is false where nobody does.
func (c *Conn) AskIndex(ctx context.Context, question []byte) (answer []byte, known bool, err error) {
	subject := c.subjects.IndexQuery()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ctx, explain, stop := c.refusals.until(ctx, subject)
	defer stop()
	m, err := c.nc.RequestWithContext(ctx, subject, question)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, false, nil
	}
	if err = explain(err); errors.Is(err, context.DeadlineExceeded) {
		return nil, false, sdk.Errorf(sdk.CodeUnavailable,
			"whoever has the index of runs, such as a console, has not answered on %s in time; look at it, or stop it, and try again", subject).WithCause(err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("ask %s: %w", subject, err)
	}
	return m.Data, true, refusal(m)
}

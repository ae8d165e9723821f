// Package provision makes streams and consumers as a plan has them, and finds what differs from it. It needs rights that few have, and nobody
// else does it: package streams says what their names are, and package broker takes what is there.
package provision

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/atonce"
	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
	"agentd/internal/days"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Broker is where streams are made: a *broker.Conn.
type Broker interface {
	JetStream() jetstream.JetStream
	Subjects() wire.Subjects
	// Layout is how streams are divided that are there; the zero value is that there are none.
	Layout(context.Context) (streams.Layout, error)
	// HasStream reports whether the stream of a zone exists that no layout divides, and HasConsumer whether a consumer does.
	HasStream(context.Context, streams.Zone) (bool, error)
	HasConsumer(context.Context, streams.ConsumerRef) (bool, error)
	// Refillable reports whether workers notice that the server was started again, and bring back what it has forgotten.
	Refillable() bool
}

// target is the Broker that a plan is for.
type target struct {
	Broker
	js       jetstream.JetStream
	subjects wire.Subjects
}

func on(b Broker) *target { return &target{b, b.JetStream(), b.Subjects()} }

// Change is one thing that Apply did, or would do.
type Change struct {
	// Kind is "stream" or "consumer"; Action "created", "updated", "rebuilt" or "kept".
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Action string `json:"action"`
	// What an update changes, such as "max_age 7d → 14d"; empty for what is made.
	What string `json:"what,omitempty"`
}

const (
	kindStream   = "stream"
	kindConsumer = "consumer"

	actionCreated = "created"
	actionUpdated = "updated"
	// actionRebuilt is that a stream was made anew with what was in it.
	actionRebuilt = "rebuilt"
	// actionKept is that a stream stays as it is, though it should be otherwise: What says what to do.
	actionKept = "kept"
)

// remedyRemake is how the persistence of a stream is changed.
const remedyRemake = "stop the workers, run agentd provision --rebuild OUT,DONE,TMR, and start them again (docs/operations.md)"

// step is a change that is to be made. do makes it, and says what it came to: another program may be quicker. It is nil where nothing is
// to be changed.
type step struct {
	Change
	do func(context.Context) (Change, error)
}

// Apply makes the broker match the plan, and says what it changed. It may be repeated and removes nothing. What a
// plan says nothing about, such as placement, limits of size or replicas, stays as the operator made it.
func Apply(ctx context.Context, b Broker, p Plan) ([]Change, error) {
	return on(b).eachStep(ctx, p, func(s step) (Change, error) { return s.do(ctx) })
}

// Planned says what Apply would change, and changes nothing.
func Planned(ctx context.Context, b Broker, p Plan) ([]Change, error) {
	return on(b).eachStep(ctx, p, func(s step) (Change, error) { return s.Change, nil })
}

func (t *target) eachStep(ctx context.Context, p Plan, take func(step) (Change, error)) ([]Change, error) {
	if err := p.check(t.subjects); err != nil {
		return nil, err
	}
	p, other, err := t.laidOut(ctx, p)
	if err == nil && other != nil {
		err = other
	}
	if err != nil {
		return nil, err
	}
	if !p.Cold { // what was archived is looked after, whether or not more is
		if p.Cold, err = t.HasStream(ctx, streams.Cold); err != nil {
			return nil, err
		}
	}
	taken := func(s step, err error) (Change, error) {
		if err != nil || s.do == nil {
			return Change{}, err
		}
		return take(s)
	}
	consumers := p.consumers(t.subjects)
	var changes []Change
	// One after the other: who may make none is told so once, and none has to wait until the server has written all the others to disk.
	for _, want := range p.Streams(t.subjects) {
		change, err := taken(t.streamStep(ctx, want, p.Replicas))
		if err != nil {
			return changes, fmt.Errorf("provision stream %s: %w", want.Name, err)
		}
		if change.Action != "" {
			changes = append(changes, change)
		}
	}
	made, err := atonce.Take(len(consumers), func(i int) (Change, error) {
		change, err := taken(t.consumerStep(ctx, consumers[i]))
		if err != nil {
			err = fmt.Errorf("provision consumer %s: %w", consumers[i].Name, err)
		}
		return change, err
	})
	for _, change := range made {
		if change.Action != "" {
			changes = append(changes, change)
		}
	}
	return changes, err
}

// then is what is done where another program made first what was to be made, maybe otherwise.
func then(ctx context.Context, s step, err error) (Change, error) {
	if err != nil || s.do == nil {
		return Change{}, err
	}
	return s.do(ctx)
}

// make makes a stream as it should be, with the replicas that it has.
func (t *target) make(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := t.streamStep(ctx, want, 0)
	_, err = then(ctx, s, err)
	return err
}

func (t *target) streamStep(ctx context.Context, want jetstream.StreamConfig, replicas int) (step, error) {
	change := Change{Kind: kindStream, Name: want.Name, Action: actionCreated}
	have, err := t.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return step{change, func(ctx context.Context) (Change, error) {
			err := leader.Patiently(ctx, t.js, "stream "+want.Name, func(ctx context.Context) error {
				_, err := t.js.CreateStream(ctx, want)
				return err
			})
			if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				other, err := t.streamStep(ctx, want, replicas)
				return then(ctx, other, err)
			}
			return change, err
		}}, nil
	}
	if err != nil {
		return step{}, err
	}
	return t.updateStep(have.CachedInfo(), want, replicas)
}

// updateStep is how a stream that is there becomes what it should be, as far as it can.
func (t *target) updateStep(have *jetstream.StreamInfo, want jetstream.StreamConfig, replicas int) (step, error) {
	got := have.Config
	if err := sameLayout(got, want); err != nil { // another program was quicker
		return step{}, err
	}
	next, kept := reconcile(got, want, replicas), keepsDiscard(have, want)
	if kept != "" {
		next.Discard, kept = got.Discard, kept+"; "+remedyLimit(want)
	}
	if next.Replicas > 1 && next.PersistMode == jetstream.AsyncPersistMode {
		return step{}, sdk.Errorf(sdk.CodeConfig, "it has persist_mode async, and the server gives replicas to no such stream; %s", remedyRemake)
	}
	change := Change{Kind: kindStream, Name: want.Name, Action: actionUpdated, What: differences(got, next)}
	switch {
	case next.PersistMode != got.PersistMode:
		change.What += "; it is made anew, and gets what was in it with reconciliation"
		return step{change, func(ctx context.Context) (Change, error) { return change, t.remake(ctx, next) }}, nil
	case !reflect.DeepEqual(got, next):
		change.What = strings.Join(slices.DeleteFunc([]string{change.What, kept}, empty), "; ")
		return step{change, func(ctx context.Context) (Change, error) {
			return change, leader.Patiently(ctx, t.js, "stream "+want.Name, func(ctx context.Context) error {
				_, err := t.js.UpdateStream(ctx, next)
				return err
			})
		}}, nil
	}
	mode := otherMode(got, want)
	if mode != "" {
		mode += "; " + remedyRemake
	}
	change.Action, change.What = actionKept, strings.Join(slices.DeleteFunc([]string{kept, mode}, empty), "; ")
	if change.What == "" {
		return step{}, nil
	}
	return step{change, func(context.Context) (Change, error) { return change, nil }}, nil
}

func empty(text string) bool { return text == "" }

// otherMode says that a stream has another persistence than it should, which the server does not change; empty is that it has not. Journals
// and what comes from outside are never confirmed before they are written.
func otherMode(got, want jetstream.StreamConfig) string {
	if got.PersistMode == want.PersistMode || got.Replicas > 1 || want.MaxMsgsPerSubject == 1 {
		return ""
	}
	return fmt.Sprintf("it has persist_mode %s, and is to have %s", setting(got.PersistMode), setting(want.PersistMode))
}

// remake makes a stream anew whose persistence the server does not change: that of the index of runs, which may be lost at any time.
func (t *target) remake(ctx context.Context, want jetstream.StreamConfig) error {
	return leader.Patiently(ctx, t.js, "stream "+want.Name, func(ctx context.Context) error {
		if err := t.js.DeleteStream(ctx, want.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		_, err := t.js.CreateStream(ctx, want)
		return err
	})
}

// differences names the settings in which two configurations of a kind differ.
func differences(got, next any) string {
	was, is := reflect.ValueOf(got), reflect.ValueOf(next)
	var told []string
	for i := range was.NumField() {
		if a, b := was.Field(i).Interface(), is.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			name, _, _ := strings.Cut(was.Type().Field(i).Tag.Get("json"), ",")
			told = append(told, fmt.Sprintf("%s %s → %s", name, setting(a), setting(b)))
		}
	}
	return strings.Join(told, ", ")
}

func setting(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return days.Text(v)
	case jetstream.PersistModeType:
		return strings.ToLower(v.String())
	}
	return fmt.Sprint(value)
}

// reconcile returns what a stream should be made: what it is, with what the plan decides.
func reconcile(got, want jetstream.StreamConfig, replicas int) jetstream.StreamConfig {
	next := got
	next.Subjects, next.Retention, next.Storage, next.Discard = want.Subjects, want.Retention, want.Storage, want.Discard
	next.DenyDelete, next.DenyPurge = want.DenyDelete, want.DenyPurge
	next.AllowMsgSchedules, next.AllowMsgTTL = want.AllowMsgSchedules, want.AllowMsgTTL
	// Schedules replace what was on their subject, so the server allows rollup with them.
	next.AllowRollup = want.AllowRollup || want.AllowMsgSchedules
	next.AllowDirect = want.AllowDirect
	if want.Duplicates != 0 {
		next.Duplicates = want.Duplicates
	}
	if want.DenyDelete {
		next.AllowAtomicPublish = false
	}
	if replicas != 0 {
		next.Replicas = replicas
	}
	if next.Replicas > 1 && want.MaxMsgsPerSubject == 1 {
		next.PersistMode = want.PersistMode // the server has no other with replicas, and the index of runs can be made anew
	}
	// A plan of fewer agents must not shorten what others on the same server need.
	next.MaxAge = longerAge(got.MaxAge, want.MaxAge)
	return next
}

// longerAge is the longer retention; 0 is for ever.
func longerAge(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

func (t *target) consumerStep(ctx context.Context, want consumerPlan) (step, error) {
	stream := streams.Name(t.subjects, want.Zone)
	change := Change{Kind: kindConsumer, Name: stream + "/" + want.Name, Action: actionCreated}
	have, err := t.js.Consumer(ctx, stream, want.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return step{change, func(ctx context.Context) (Change, error) {
			err := leader.Patiently(ctx, t.js, "consumer "+stream+"/"+want.Name, func(ctx context.Context) error {
				_, err := t.js.CreateConsumer(ctx, stream, want.config())
				return err
			})
			if errors.Is(err, jetstream.ErrConsumerExists) {
				other, err := t.consumerStep(ctx, want)
				return then(ctx, other, err)
			}
			return change, err
		}}, nil
	}
	if err != nil {
		return step{}, err
	}
	got, next := have.CachedInfo().Config, want.config()
	if filters := filtersOf(got); want.reader == aService && !slices.Equal(filters, want.filters) {
		return step{}, sdk.Errorf(sdk.CodeConfig, "it exists for other calls (%s); rename a domain or a type, or delete it",
			strings.Join(filters, ", "))
	}
	change.Action, change.What = actionUpdated, differences(decided(got), decided(next))
	if change.What == "" {
		return step{}, nil
	}
	next.Replicas, next.MemoryStorage, next.Metadata, next.Description = got.Replicas, got.MemoryStorage, got.Metadata, got.Description
	return step{change, func(ctx context.Context) (Change, error) {
		return change, leader.Patiently(ctx, t.js, "consumer "+stream+"/"+want.Name, func(ctx context.Context) error {
			_, err := t.js.UpdateConsumer(ctx, stream, next)
			return err
		})
	}}, nil
}

// decided is what the plan decides of a consumer.
func decided(c jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	d := jetstream.ConsumerConfig{
		FilterSubjects: filtersOf(c), AckPolicy: c.AckPolicy, AckWait: c.AckWait, MaxDeliver: c.MaxDeliver, MaxAckPending: c.MaxAckPending,
	}
	if len(c.BackOff) > 0 {
		d.BackOff = c.BackOff
	}
	return d
}

// filtersOf are a consumer's filters, however they are written.
func filtersOf(c jetstream.ConsumerConfig) []string {
	if len(c.FilterSubjects) == 0 && c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return c.FilterSubjects
}

// Index makes the stream of the documents of the index of runs, for whoever asks for that index. It may be repeated.
func Index(ctx context.Context, b Broker) error {
	all := Plan{Index: true}.Streams(b.Subjects())
	if err := on(b).make(ctx, all[len(all)-1]); err != nil {
		return fmt.Errorf("make the index of runs: %w", err)
	}
	return nil
}

// Bucket makes a key-value bucket whose values are kept for a time, on as many servers as the stream of init events. It may be repeated.
func Bucket(ctx context.Context, b Broker, name string, kept time.Duration) error {
	starts, err := b.JetStream().Stream(ctx, streams.Name(b.Subjects(), streams.Start))
	if err != nil {
		return fmt.Errorf("look at the stream of init events: %w", err)
	}
	want := bucket(name, 1, starts.CachedInfo().Config.Replicas)
	want.MaxAge = kept
	if err := on(b).make(ctx, want); err != nil {
		return fmt.Errorf("make bucket %s: %w", name, err)
	}
	return nil
}

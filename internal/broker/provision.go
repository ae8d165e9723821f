package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/days"
	"agentd/sdk"
)

// Change is one thing that Provision did, or would do.
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

// Provision makes the broker match the plan, and says what it changed. It may be repeated and removes nothing. What a
// plan says nothing about, such as placement, limits of size or replicas, stays as the operator made it.
func (c *Conn) Provision(ctx context.Context, p Plan) ([]Change, error) {
	return c.eachStep(ctx, p, func(s step) (Change, error) { return s.do(ctx) })
}

// Unprovisioned says what Provision would change, and changes nothing.
func (c *Conn) Unprovisioned(ctx context.Context, p Plan) ([]Change, error) {
	return c.eachStep(ctx, p, func(s step) (Change, error) { return s.Change, nil })
}

func (c *Conn) eachStep(ctx context.Context, p Plan, take func(step) (Change, error)) ([]Change, error) {
	if err := c.check(p); err != nil {
		return nil, err
	}
	p, other, err := c.laidOut(ctx, p)
	if err == nil && other != nil {
		err = other
	}
	if err != nil {
		return nil, err
	}
	if !p.Cold { // what was archived is looked after, whether or not more is
		if p.Cold, err = c.HasStream(ctx, ZoneCold); err != nil {
			return nil, err
		}
	}
	taken := func(s step, err error) (Change, error) {
		if err != nil || s.do == nil {
			return Change{}, err
		}
		return take(s)
	}
	streams, consumers := c.streams(p), c.consumers(p)
	var changes []Change
	// One after the other: who may make none is told so once, and none has to wait until the server has written all the others to disk.
	for _, want := range streams {
		change, err := taken(c.streamStep(ctx, want, p.Replicas))
		if err != nil {
			return changes, fmt.Errorf("provision stream %s: %w", want.Name, err)
		}
		if change.Action != "" {
			changes = append(changes, change)
		}
	}
	made, err := atOnce(len(consumers), func(i int) (Change, error) {
		change, err := taken(c.consumerStep(ctx, consumers[i]))
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

// mostSteps is how many steps are taken at once: the server makes a consumer in less time than a request takes to get there and back.
const mostSteps = 32

// atOnce takes n steps, several at once, and returns what each came to, in order: nothing for those that failed, or were not taken. After
// one that failed no further one begins; the error is the first of those that did, in the order of the steps.
func atOnce[T any](n int, take func(i int) (T, error)) ([]T, error) {
	made, problems := make([]T, n), make([]error, n)
	var failed atomic.Bool
	var next atomic.Int64
	var taking sync.WaitGroup
	for range min(n, mostSteps) {
		taking.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !failed.Load(); i = int(next.Add(1)) - 1 {
				one, err := take(i)
				if err != nil {
					problems[i] = err
					failed.Store(true)
					continue
				}
				made[i] = one
			}
		})
	}
	taking.Wait()
	return made, cmp.Or(problems...)
}

// then is what is done where another program made first what was to be made, maybe otherwise.
func then(ctx context.Context, s step, err error) (Change, error) {
	if err != nil || s.do == nil {
		return Change{}, err
	}
	return s.do(ctx)
}

// makeStream makes a stream as it should be, with the replicas that it has.
func (c *Conn) makeStream(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := c.streamStep(ctx, want, 0)
	_, err = then(ctx, s, err)
	return err
}

func (c *Conn) streamStep(ctx context.Context, want jetstream.StreamConfig, replicas int) (step, error) {
	change := Change{Kind: kindStream, Name: want.Name, Action: actionCreated}
	have, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return step{change, func(ctx context.Context) (Change, error) {
			err := leader.Patiently(ctx, c.js, "stream "+want.Name, func(ctx context.Context) error {
				_, err := c.js.CreateStream(ctx, want)
				return err
			})
			if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				other, err := c.streamStep(ctx, want, replicas)
				return then(ctx, other, err)
			}
			return change, err
		}}, nil
	}
	if err != nil {
		return step{}, err
	}
	return c.updateStep(have.CachedInfo(), want, replicas)
}

// updateStep is how a stream that is there becomes what it should be, as far as it can.
func (c *Conn) updateStep(have *jetstream.StreamInfo, want jetstream.StreamConfig, replicas int) (step, error) {
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
		return step{change, func(ctx context.Context) (Change, error) { return change, c.remake(ctx, next) }}, nil
	case !reflect.DeepEqual(got, next):
		change.What = strings.Join(slices.DeleteFunc([]string{change.What, kept}, empty), "; ")
		return step{change, func(ctx context.Context) (Change, error) {
			return change, leader.Patiently(ctx, c.js, "stream "+want.Name, func(ctx context.Context) error {
				_, err := c.js.UpdateStream(ctx, next)
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
func (c *Conn) remake(ctx context.Context, want jetstream.StreamConfig) error {
	return leader.Patiently(ctx, c.js, "stream "+want.Name, func(ctx context.Context) error {
		if err := c.js.DeleteStream(ctx, want.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		_, err := c.js.CreateStream(ctx, want)
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

func (c *Conn) consumerStep(ctx context.Context, want consumerPlan) (step, error) {
	stream := StreamName(c.subjects, want.Zone)
	change := Change{Kind: kindConsumer, Name: stream + "/" + want.Name, Action: actionCreated}
	have, err := c.js.Consumer(ctx, stream, want.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return step{change, func(ctx context.Context) (Change, error) {
			err := leader.Patiently(ctx, c.js, "consumer "+stream+"/"+want.Name, func(ctx context.Context) error {
				_, err := c.js.CreateConsumer(ctx, stream, want.config())
				return err
			})
			if errors.Is(err, jetstream.ErrConsumerExists) {
				other, err := c.consumerStep(ctx, want)
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
		return change, leader.Patiently(ctx, c.js, "consumer "+stream+"/"+want.Name, func(ctx context.Context) error {
			_, err := c.js.UpdateConsumer(ctx, stream, next)
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

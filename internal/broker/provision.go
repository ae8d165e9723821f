package broker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/sdk"
)

// Change is one thing that Provision did.
type Change struct {
	// Kind is "stream" or "consumer"; Action "created" or "updated".
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Action string `json:"action"`
}

const (
	actionCreated = "created"
	actionUpdated = "updated"
)

// Provision makes the broker match the plan, and says what it changed. It may be repeated and removes nothing. What a
// plan says nothing about, such as placement, limits of size or replicas, stays as the operator made it.
func (c *Conn) Provision(ctx context.Context, p Plan) ([]Change, error) {
	if err := c.check(p); err != nil {
		return nil, err
	}
	var changes []Change
	for _, want := range c.streams(p) {
		action, err := c.provisionStream(ctx, want, p.Replicas)
		if err != nil {
			return changes, fmt.Errorf("provision stream %s: %w", want.Name, err)
		}
		if action != "" {
			changes = append(changes, Change{"stream", want.Name, action})
		}
	}
	for _, want := range c.consumers(p) {
		action, err := c.provisionConsumer(ctx, want)
		if err != nil {
			return changes, fmt.Errorf("provision consumer %s: %w", want.Name, err)
		}
		if action != "" {
			changes = append(changes, Change{"consumer", StreamName(c.subjects, want.Zone) + "/" + want.Name, action})
		}
	}
	return changes, nil
}

func (c *Conn) provisionStream(ctx context.Context, want jetstream.StreamConfig, replicas int) (string, error) {
	have, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = leader.Patiently(ctx, c.js, "stream "+want.Name, func(ctx context.Context) error {
			_, err := c.js.CreateStream(ctx, want)
			return err
		})
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return actionCreated, err
		}
		have, err = c.js.Stream(ctx, want.Name) // another program was quicker, with another plan
	}
	if err != nil {
		return "", err
	}
	got := have.CachedInfo().Config
	next := reconcile(got, want, replicas)
	if reflect.DeepEqual(got, next) {
		return "", nil
	}
	return actionUpdated, leader.Patiently(ctx, c.js, "stream "+want.Name, func(ctx context.Context) error {
		_, err := c.js.UpdateStream(ctx, next)
		return err
	})
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

func (c *Conn) provisionConsumer(ctx context.Context, want consumerPlan) (string, error) {
	stream := StreamName(c.subjects, want.Zone)
	have, err := c.js.Consumer(ctx, stream, want.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		err = leader.Patiently(ctx, c.js, "consumer "+stream+"/"+want.Name, func(ctx context.Context) error {
			_, err := c.js.CreateConsumer(ctx, stream, want.config())
			return err
		})
		if !errors.Is(err, jetstream.ErrConsumerExists) {
			return actionCreated, err
		}
		have, err = c.js.Consumer(ctx, stream, want.Name)
	}
	if err != nil {
		return "", err
	}
	got, next := have.CachedInfo().Config, want.config()
	if filters := filtersOf(got); want.service && !slices.Equal(filters, want.filters) {
		return "", sdk.Errorf(sdk.CodeConfig, "it exists for other calls (%s); rename a domain or a type, or delete it",
			strings.Join(filters, ", "))
	}
	if slices.Equal(filtersOf(got), want.filters) && got.AckPolicy == next.AckPolicy && got.AckWait == next.AckWait &&
		got.MaxDeliver == next.MaxDeliver && got.MaxAckPending == next.MaxAckPending && len(got.BackOff) == 0 {
		return "", nil
	}
	next.Replicas, next.MemoryStorage, next.Metadata, next.Description = got.Replicas, got.MemoryStorage, got.Metadata, got.Description
	return actionUpdated, leader.Patiently(ctx, c.js, "consumer "+stream+"/"+want.Name, func(ctx context.Context) error {
		_, err := c.js.UpdateConsumer(ctx, stream, next)
		return err
	})
}

// filtersOf are a consumer's filters, however they are written.
func filtersOf(c jetstream.ConsumerConfig) []string {
	if len(c.FilterSubjects) == 0 && c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return c.FilterSubjects
}

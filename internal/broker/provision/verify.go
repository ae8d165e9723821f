package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/atonce"
	"agentd/internal/broker/streams"
	"agentd/internal/days"
	"agentd/internal/finding"
	"agentd/sdk"
)

// Verify compares the broker with the plan and changes nothing. What this user may not look at is one finding.
func Verify(ctx context.Context, b Broker, p Plan) ([]finding.Finding, error) {
	t := on(b)
	if err := p.check(t.subjects); err != nil {
		return nil, err
	}
	p, other, err := t.laidOut(ctx, p)
	if err != nil {
		return nil, err
	}
	var findings []finding.Finding
	if other != nil {
		findings = append(findings, finding.Error("partitions", other.Message, remedyPartitions))
	}
	looks := t.looks(p)
	all, err := atonce.Take(len(looks), func(i int) (seen, error) {
		found, err := looks[i].at(ctx)
		if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
			return seen{hidden: true}, nil
		}
		return seen{findings: found}, err
	})
	var hidden []string
	for i, one := range all {
		findings = append(findings, one.findings...)
		if one.hidden {
			hidden = append(hidden, looks[i].what)
		}
	}
	if err != nil {
		return findings, err
	}
	if len(hidden) > 0 {
		findings = append(findings, finding.NotPermitted("look at "+finding.Some(hidden), "whether they are as they should be"))
	}
	return findings, nil
}

// look is a look at something, and seen what comes of it: hidden is that this user may not look.
type (
	look struct {
		what string
		at   func(context.Context) ([]finding.Finding, error)
	}
	seen struct {
		findings []finding.Finding
		hidden   bool
	}
)

// looks are at all that a plan has, in its order.
func (t *target) looks(p Plan) []look {
	var all []look
	in := streams.Name(t.subjects, streams.In)
	for _, want := range p.Streams(t.subjects) {
		needed := want.MaxAge
		if streams.Whole(want.Name) == in {
			needed = cmp.Or(p.AnswersNeeded, want.MaxAge)
		}
		at := func(ctx context.Context) ([]finding.Finding, error) { return t.lookAtStream(ctx, want, needed) }
		all = append(all, look{"stream " + want.Name, at})
	}
	for _, want := range p.consumers(t.subjects) {
		at := func(ctx context.Context) ([]finding.Finding, error) { return t.verifyConsumer(ctx, want) }
		all = append(all, look{"consumer " + t.consumerName(want), at})
	}
	return all
}

func (t *target) consumerName(want consumerPlan) string {
	return streams.Name(t.subjects, want.Zone) + "/" + want.Name
}

// lookAtStream compares a stream with what it should be. needed is the age without which promises are broken; a stream may be planned to
// keep more.
func (t *target) lookAtStream(ctx context.Context, want jetstream.StreamConfig, needed time.Duration) ([]finding.Finding, error) {
	s, err := t.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return []finding.Finding{finding.Error("stream_missing", "stream "+want.Name+" does not exist", streams.Remedy)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", want.Name, err)
	}
	got := s.CachedInfo().Config
	return slices.Concat(verifyStream(got, want), verifyRoom(s.CachedInfo(), want), verifyAge(got, want, needed)), nil
}

// verifyRoom finds what limits of its own do to a stream, unless it may forget what is oldest.
func verifyRoom(info *jetstream.StreamInfo, want jetstream.StreamConfig) []finding.Finding {
	got := info.Config
	if want.Discard == jetstream.DiscardOld && !want.AllowMsgSchedules {
		return nil
	}
	mended := streams.Unbounded(got.Name, want.MaxMsgsPerSubject)
	kept := keepsDiscard(info, want)
	var found []finding.Finding
	switch full := streams.Fullness(info); {
	case full != "" && kept != "":
		found = append(found, finding.Error("stream_full", full, remedyLimit(want)))
	case full != "":
		severity := finding.SeverityError
		if want.DenyPurge && got.Discard == jetstream.DiscardNew { // others publish here: they wait, and runs go on
			severity = finding.SeverityWarning
		}
		found = append(found, finding.Finding{Code: "stream_full", Severity: severity, Message: full, Remedy: "give it room, or " + mended})
	case got.Discard == jetstream.DiscardOld && bounded(got):
		remedy := streams.Remedy
		switch {
		case want.Discard == jetstream.DiscardOld:
			remedy = mended
		case kept != "":
			remedy = remedyLimit(want)
		}
		found = append(found, finding.Error("discards_old", "stream "+got.Name+" has a limit, at which it removes what is oldest, such as what a run waits for",
			remedy))
	}
	return append(found, verifySubjects(got, want)...)
}

// verifySubjects finds a limit of each subject that is not agentd's own. Only where it is asked to for each subject does a server refuse what
// is new at such a limit, whatever else is said of what it discards.
func verifySubjects(got, want jetstream.StreamConfig) []finding.Finding {
	if got.MaxMsgsPerSubject <= 0 || want.MaxMsgsPerSubject > 0 {
		return nil
	}
	then := "removes the oldest of them, such as an entry of a journal"
	if got.DiscardNewPerSubject {
		then = "takes no more of them, such as the next entry of a journal"
	}
	return []finding.Finding{finding.Error("subject_limit",
		fmt.Sprintf("stream %s has a limit of %d messages on a subject (max_msgs_per_subject), at which it %s", got.Name, got.MaxMsgsPerSubject, then),
		streams.Unbounded(got.Name, 0))}
}

func verifyStream(got, want jetstream.StreamConfig) []finding.Finding {
	var f []finding.Finding
	add := func(code string, severity finding.Severity, message, remedy string) {
		f = append(f, finding.Finding{Code: code, Severity: severity, Message: "stream " + got.Name + ": " + message, Remedy: remedy})
	}
	if want.DenyPurge { // others publish here
		if got.Duplicates > shortestDuplicates {
			add("duplicates_window", finding.SeverityError,
				fmt.Sprintf("its duplicate window is %s; a publisher could use up the message id of another's answer", got.Duplicates),
				"run: agentd provision, or: nats stream edit "+got.Name+" --dupe-window 100ms")
		}
		if got.AllowRollup || got.AllowMsgSchedules || got.AllowAtomicPublish {
			add("rollup_allowed", finding.SeverityError, "it allows rollup, schedules or batches; a publisher could wipe it",
				streams.Remedy+"; if it allows schedules, the stream must be made anew")
		}
		if !got.DenyDelete || !got.DenyPurge {
			add("delete_allowed", finding.SeverityWarning, "messages can be deleted", streams.Remedy)
		}
	}
	if !slices.Equal(got.Subjects, want.Subjects) {
		add("subjects", finding.SeverityError, fmt.Sprintf("it stores %v instead of %v", got.Subjects, want.Subjects), streams.Remedy)
	}
	if want.AllowMsgSchedules && !got.AllowMsgSchedules {
		add("no_schedules", finding.SeverityError, "it does not allow scheduled messages, so no timer fires", streams.Remedy)
	}
	if want.AllowMsgTTL && !got.AllowMsgTTL {
		add("no_ttl", finding.SeverityError, "it does not allow messages with a time to live, which fired timers have, so no timer can be armed",
			streams.Remedy)
	}
	if want.AllowDirect && !got.AllowDirect {
		add("no_direct", finding.SeverityError, "it allows no direct reads, by which it is read", streams.Remedy)
	}
	if want.AllowRollup && !got.AllowRollup {
		add("no_rollup", finding.SeverityWarning, "it lets no message replace others, which is how it forgets", streams.Remedy)
	}
	if problem := otherMode(got, want); problem != "" {
		add("persist_mode", finding.SeverityWarning, problem, remedyRemake)
	}
	if got.Retention != jetstream.LimitsPolicy {
		add("retention", finding.SeverityError, "its retention is not by limits", "create it anew: agentd provision")
	}
	return f
}

func verifyAge(got, want jetstream.StreamConfig, needed time.Duration) []finding.Finding {
	switch age := days.Text(got.MaxAge); {
	case got.MaxAge == 0 || want.MaxAge != 0 && got.MaxAge >= want.MaxAge:
		return nil
	case want.MaxAge != 0 && got.MaxAge >= needed:
		return []finding.Finding{finding.Warning("answers_age",
			fmt.Sprintf("stream %s: it forgets messages after %s, and nats.answers_age is %s", got.Name, age, days.Text(want.MaxAge)),
			streams.Remedy)}
	default:
		return []finding.Finding{finding.Error("max_age",
			fmt.Sprintf("stream %s: it forgets messages after %s, before the longest deadline of a configured agent has passed", got.Name, age),
			streams.Remedy)}
	}
}

func (t *target) verifyConsumer(ctx context.Context, want consumerPlan) ([]finding.Finding, error) {
	name := t.consumerName(want)
	consumer, err := t.js.Consumer(ctx, streams.Name(t.subjects, want.Zone), want.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return []finding.Finding{finding.Error("consumer_missing", "consumer "+name+" does not exist", streams.Remedy)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at consumer %s: %w", name, err)
	}
	var f []finding.Finding
	info := consumer.CachedInfo()
	add := func(code string, severity finding.Severity, message string) {
		f = append(f, finding.Finding{Code: code, Severity: severity, Message: "consumer " + name + ": " + message, Remedy: streams.Remedy})
	}
	got := info.Config
	if filters := filtersOf(got); !slices.Equal(filters, want.filters) {
		add("filters", finding.SeverityError, fmt.Sprintf("it reads %v instead of %v", filters, want.filters))
	}
	if got.AckPolicy != jetstream.AckExplicitPolicy {
		add("ack_policy", finding.SeverityError, "its messages are not acknowledged one by one")
	}
	if got.MaxDeliver != -1 {
		add("max_deliver", finding.SeverityError,
			fmt.Sprintf("it gives up on a message after %d deliveries; a run may be stuck for ever", got.MaxDeliver))
	}
	if got.MaxAckPending != -1 {
		add("max_ack_pending", finding.SeverityWarning,
			fmt.Sprintf("at most %d messages are in flight, however many slots the workers have", got.MaxAckPending))
	}
	if got.AckWait != want.ackWait || len(got.BackOff) > 0 {
		add("ack_wait", finding.SeverityWarning, fmt.Sprintf("a delivery lasts %s (back-off %v) instead of %s; so long nobody takes over from a reader that died",
			got.AckWait, got.BackOff, want.ackWait))
	}
	if lag := info.NumPending; lag > 0 && info.Delivered.Last != nil && time.Since(*info.Delivered.Last) > days.Day {
		f = append(f, finding.Warning("consumer_lag", fmt.Sprintf("consumer %s has %d messages to read and has read none for a day", name, lag),
			"start a worker or service for it"))
	}
	return f, nil
}

// Problem turns findings into the error of a command that cannot go on with them; nil when none is an error.
func Problem(findings []finding.Finding) error {
	var text strings.Builder
	remedy := ""
	for _, f := range findings {
		if f.Severity != finding.SeverityError {
			continue
		}
		if remedy != "" && f.Remedy != remedy {
			text.WriteString("\n" + remedy)
		}
		text.WriteString("\n  " + f.Text())
		remedy = f.Remedy
	}
	if remedy == "" {
		return nil
	}
	return sdk.Errorf(sdk.CodeConfig, "the broker is not set up:%s\n%s", text.String(), remedy)
}

// MissingConsumers are those of refs that do not exist.
func MissingConsumers(ctx context.Context, b Broker, refs ...streams.ConsumerRef) ([]streams.ConsumerRef, error) {
	there, err := atonce.Take(len(refs), func(i int) (bool, error) {
		exists, err := b.HasConsumer(ctx, refs[i])
		if err != nil {
			err = fmt.Errorf("look for consumer %s: %w", refs[i].Name, err)
		}
		return exists, err
	})
	if err != nil {
		return nil, err
	}
	var missing []streams.ConsumerRef
	for i, ref := range refs {
		if !there[i] {
			missing = append(missing, ref)
		}
	}
	return missing, nil
}

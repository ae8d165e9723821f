package bulk

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentd/internal/broker"
	"agentd/internal/deadletter"
	"agentd/internal/index"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Letter is a dead letter: Stream and Origin are where its message came from, and Document is what filters say of it, with the reason as
// the code, and when it was dead-lettered as the time of the last change.
type Letter struct {
	Sequence uint64
	Stream   string
	Origin   uint64
	Document index.Document
}

// letterKeys are what filters may say of dead letters.
var letterKeys = []string{index.KeyCode, index.KeyRun, index.KeyAgent, index.KeyChanged}

// checkLetters lists what is wrong with a filter of dead letters.
func checkLetters(f index.Filter) (faults []string) {
	for i := range f.Terms {
		if t := &f.Terms[i]; !slices.Contains(letterKeys, t.Key) {
			faults = append(faults, t.String()+" is nothing that dead letters have: they are selected by code:, which is the reason, run:, agent: and changed")
		}
	}
	return faults
}

// tokens is a filter of dead letters whose agents are named as in subjects, which is all that a letter may have.
func tokens(f index.Filter) index.Filter {
	terms := slices.Clone(f.Terms)
	for i := range terms {
		if terms[i].Key == index.KeyAgent && terms[i].Value != "" {
			terms[i].Value = wire.NameToken(terms[i].Value)
		}
	}
	return index.Filter{Terms: terms}
}

// letters calls each with the dead letters that a filter selects.
func (b Bulk) letters(ctx context.Context, f index.Filter, each func(target) error) error {
	f = tokens(f)
	return b.Runs.Letters(ctx, func(l Letter) error {
		if !f.Matches(&l.Document, time.UnixMilli(b.Now())) {
			return nil
		}
		return each(target{Run: strconv.FormatUint(l.Sequence, 10), Agent: l.Document.Agent, Stream: l.Stream, Origin: l.Origin})
	})
}

// redrive publishes a dead letter again, unless that was done before.
func (b Bulk) redrive(ctx context.Context, job *Job, t *target) (Result, error) {
	sequence, err := strconv.ParseUint(t.Run, 10, 64)
	if err != nil {
		return Result{}, err
	}
	if err := b.Pause(ctx, time.Second/time.Duration(job.Rate)); err != nil {
		return Result{}, err
	}
	how, err := b.Runs.Settled(ctx, t.Stream, t.Origin, sequence)
	switch {
	case err != nil:
		return Result{}, err
	case strings.Contains(how, "bulk job "+job.ID): // by a program that was killed before it could say so
		return Result{Outcome: Done}, nil
	case how != "":
		return Result{Outcome: Skipped, Problem: "it was dealt with before: " + how}, nil
	}
	err = b.Runs.Redrive(ctx, sequence, job.title())
	if e := sdk.AsError(err); err != nil && (e.Code == sdk.CodeInvalidEvent || e.Code == sdk.CodeConflict) {
		return Result{Outcome: Skipped, Problem: e.Message}, nil
	}
	return Result{Outcome: Done}, err
}

// Letters implements Runs.
func (l Live) Letters(ctx context.Context, each func(Letter) error) error {
	return l.Conn.Letters(ctx, broker.LetterFilter{}, func(b broker.Letter) (bool, error) {
		named := deadletter.Of(l.Subjects(), b)
		err := each(Letter{Sequence: b.Sequence, Stream: b.Stream, Origin: b.Origin, Document: index.Document{
			Run: named.Run, Agent: named.Address.Agent, Code: string(b.Reason), Changed: b.At,
		}})
		return err == nil, err
	})
}

// Settled implements Runs.
func (l Live) Settled(ctx context.Context, stream string, origin, sequence uint64) (how string, err error) {
	if _, err := l.Letter(ctx, sequence); !errors.Is(err, broker.ErrNotStored) {
		return "", err
	}
	if how, err = l.LetterSettled(ctx, stream, origin); err == nil && how == "" {
		how = "nobody knows how"
	}
	return how, err
}

// Redrive implements Runs.
func (l Live) Redrive(ctx context.Context, sequence uint64, by string) error {
	letter, err := deadletter.Get(ctx, l.Conn, sequence)
	if err != nil {
		return err
	}
	_, err = letter.RedriveFor(ctx, l.Conn, l.Histories, by)
	return err
}

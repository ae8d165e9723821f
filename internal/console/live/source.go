package live

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/broker/survey"
	"agentd/internal/config"
	"agentd/internal/console"
	"agentd/internal/core"
	"agentd/internal/deadletter"
	"agentd/internal/doctor"
	"agentd/internal/runner"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/internal/state"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// source implements console.Source. What the server refuses to this user is said at once.
type source struct {
	conn    *broker.Conn
	store   state.Store
	config  func() *config.Config
	connect func(context.Context) (*broker.Conn, error)
	waking  *waking
}

// permitted is Conn.Permitted of something with a result.
func permitted[T any](ctx context.Context, conn *broker.Conn, do func(context.Context) (T, error)) (result T, err error) {
	err = conn.Permitted(ctx, func(ctx context.Context) (err error) {
		result, err = do(ctx)
		return err
	})
	return result, err
}

func unknown(run string) error {
	return sdk.Errorf(sdk.CodeUnknownRun, "run %s does not exist, or no worker has begun it yet", show.Line(run, show.LineMax))
}

// Last implements console.Source.
func (s *source) Last(ctx context.Context, run string) (core.Entry, error) {
	last, err := permitted(ctx, s.conn, func(ctx context.Context) (runner.Record, error) { return s.store.Head(ctx, wire.NewRunKey(run)) })
	if errors.Is(err, runner.ErrNotFound) {
		return core.Entry{}, unknown(run)
	}
	if err != nil {
		return core.Entry{}, unreadable(run, err)
	}
	e, err := core.DecodeEntry(last.Data)
	if err != nil && !errors.Is(err, core.ErrLaterLayout) {
		err = fmt.Errorf("%w: entry %d: %w", runner.ErrCorrupt, last.Rev, err)
	}
	return e, unreadable(run, err)
}

// inEntry says which of the records cannot be read. Where all can, the error names the one that does not follow the one before.
func inEntry(records []runner.Record, err error) error {
	for _, record := range records {
		if _, bad := core.DecodeEntry(record.Data); bad != nil {
			return fmt.Errorf("%w: entry %d: %w", runner.ErrCorrupt, record.Rev, bad)
		}
	}
	return err
}

// unreadable is the error of what is read of a run, with what is wrong and what can be done where the run is not what agentd wrote.
func unreadable(run string, err error) error {
	switch name := show.Line(run, show.LineMax); {
	case errors.Is(err, core.ErrLaterLayout):
		return sdk.Errorf(sdk.CodeCorrupt, "a later version of agentd wrote run %s; look at it with a console of that version", name).WithCause(err)
	case errors.Is(err, runner.ErrCorrupt):
		return sdk.Errorf(sdk.CodeCorrupt, "what the store has of run %s is not what was written; docs/dead_letters.md says what can be done", name).WithCause(err)
	}
	return err
}

// Part implements console.Source.
func (s *source) Part(ctx context.Context, run string, from uint64, most int) ([]core.Entry, error) {
	return permitted(ctx, s.conn, func(ctx context.Context) ([]core.Entry, error) {
		key := wire.NewRunKey(run)
		records, err := s.store.Part(ctx, key, from, most)
		if err != nil {
			return nil, err
		}
		entries, err := runner.New(runner.Options{Store: s.store}).Part(ctx, key, records)
		if errors.Is(err, runner.ErrCorrupt) {
			err = inEntry(records, err)
		}
		return entries, unreadable(run, err)
	})
}

// recent is how many dead letters are looked through where nothing is asked for in particular.
const recent = 1000

// Letters implements console.Source.
func (s *source) Letters(ctx context.Context, f console.LetterFilter) (letters []show.Letter, more bool, err error) {
	filter := broker.LetterFilter{Reason: sdk.Code(f.Reason)}
	if f.Reason != "" && !slices.Contains(deadletter.Reasons(), filter.Reason) {
		return nil, false, sdk.Errorf(sdk.CodeContractViolation, "%q is not a reason; want one of %v", f.Reason, deadletter.Reasons())
	}
	if f == (console.LetterFilter{Limit: f.Limit}) {
		bounds, err := permitted(ctx, s.conn, func(ctx context.Context) (broker.Bounds, error) { return s.conn.Bounds(ctx, streams.DLQ) })
		if err != nil {
			return nil, false, err
		}
		if bounds.Last > recent {
			filter.After, more = bounds.Last-recent, true
		}
	}
	err = s.conn.Permitted(ctx, func(ctx context.Context) error {
		return s.conn.Letters(ctx, filter, func(b broker.Letter) (bool, error) {
			l := deadletter.Of(s.conn.Subjects(), b)
			if l.At < f.Since || f.Run != "" && l.Key != wire.NewRunKey(f.Run) || f.Agent != "" && l.Address.Agent != wire.NameToken(f.Agent) {
				return true, ctx.Err()
			}
			if letters = append(letters, l.Row()); len(letters) > f.Limit {
				letters, more = letters[1:], true
			}
			return true, ctx.Err()
		})
	})
	slices.Reverse(letters)
	return letters, more, err
}

// Letter implements console.Source.
func (s *source) Letter(ctx context.Context, sequence uint64) (show.LetterDetail, error) {
	return permitted(ctx, s.conn, func(ctx context.Context) (show.LetterDetail, error) {
		l, err := deadletter.Get(ctx, s.conn, sequence)
		if err != nil {
			return show.LetterDetail{}, err
		}
		return l.Describe(ctx, s.store, false), nil
	})
}

// Redrive implements console.Source.
func (s *source) Redrive(ctx context.Context, sequence uint64) (string, error) {
	return permitted(ctx, s.conn, func(ctx context.Context) (string, error) {
		l, err := deadletter.Get(ctx, s.conn, sequence)
		if err != nil {
			return "", err
		}
		return l.Redrive(ctx, s.conn, s.store)
	})
}

// Drop implements console.Source.
func (s *source) Drop(ctx context.Context, sequence uint64) error {
	return s.conn.Permitted(ctx, func(ctx context.Context) error {
		l, err := deadletter.Get(ctx, s.conn, sequence)
		if err != nil {
			return err
		}
		return s.conn.SettleLetter(ctx, l.Letter, "dropped")
	})
}

// AgentState implements console.Source.
func (s *source) AgentState(ctx context.Context, agent string) (console.AgentState, error) {
	return permitted(ctx, s.conn, func(ctx context.Context) (state console.AgentState, err error) {
		p, err := s.conn.AgentPause(ctx, agent)
		if err != nil {
			return state, err
		}
		state.Paused, state.Drain = p.Paused(), p.Drain
		backlog, err := s.conn.Backlog(ctx, streams.AgentConsumers(agent)[0])
		if err != nil {
			return state, err
		}
		state.New = int(backlog.Pending)
		state.Unserved, err = s.conn.Unread(ctx, streams.AgentConsumers(agent)...)
		return state, err
	})
}

// PauseAgent implements console.Source.
func (s *source) PauseAgent(ctx context.Context, agent string, lasting time.Duration, drain bool) error {
	return s.conn.Permitted(ctx, func(ctx context.Context) error {
		known, err := s.conn.HasConsumer(ctx, streams.AgentConsumers(agent)[0])
		if err == nil && !known {
			err = sdk.Errorf(sdk.CodeUnknownAgent, "the server has no consumers for agent %s; run: agentd provision", agent)
		}
		if err != nil {
			return err
		}
		return s.conn.PauseAgent(ctx, agent, broker.AgentPause{For: cmp.Or(lasting, broker.Endless), Drain: drain})
	})
}

// ResumeAgent implements console.Source.
func (s *source) ResumeAgent(ctx context.Context, agent string) error {
	err := s.conn.Permitted(ctx, func(ctx context.Context) error { return s.conn.EndPause(ctx, agent) })
	if err == nil {
		s.waking.wake(agent)
	}
	return err
}

// Unserved implements console.Source.
func (s *source) Unserved(ctx context.Context, domain, contractType string) (bool, error) {
	return permitted(ctx, s.conn, func(ctx context.Context) (bool, error) { return s.conn.Unserved(ctx, domain, contractType) })
}

// Contracts implements console.Source.
func (s *source) Contracts(ctx context.Context) ([]sdk.Contract, error) {
	return permitted(ctx, s.conn, func(ctx context.Context) ([]sdk.Contract, error) {
		registry, err := s.conn.Registry().Read(ctx)
		if err != nil {
			return nil, err
		}
		var list []sdk.Contract
		for _, published := range registry.List() {
			if published.Removed {
				continue
			}
			i := slices.IndexFunc(list, func(c sdk.Contract) bool { return c.Type == published.Contract.Type })
			if i < 0 {
				i, list = len(list), append(list, published.Contract)
				list[i].Versions = map[string]sdk.ContractVersion{}
			}
			maps.Copy(list[i].Versions, published.Contract.Versions)
		}
		return list, nil
	})
}

// Instances implements console.Source.
func (s *source) Instances(ctx context.Context, contractType string) ([]string, error) {
	return permitted(ctx, s.conn, func(ctx context.Context) ([]string, error) {
		told, err := s.conn.Statistics(ctx, wire.NameToken(contractType))
		return slices.Sorted(maps.Keys(told)), err
	})
}

// Examine implements console.Source.
func (s *source) Examine(ctx context.Context) (console.Examination, error) {
	found, err := doctor.Examine(ctx, s.config(), "", s.connect)
	if err != nil {
		return console.Examination{}, err
	}
	e := console.Examination{
		Examined: found.Examined, Findings: []console.Finding{}, Streams: []console.Stream{}, Consumers: []console.Consumer{}, Workers: []console.Worker{},
	}
	for _, f := range found.Findings {
		e.Findings = append(e.Findings, console.Finding{Severity: string(f.Severity), Code: f.Code, Message: f.Text(), Remedy: f.Remedy})
	}
	if err := errors.Join(s.holdings(ctx, &e), s.workers(ctx, &e)); err != nil {
		e.Unseen = sdk.AsError(err).Message
	}
	return e, ctx.Err()
}

// holdings are what streams hold, and how far consumers are.
func (s *source) holdings(ctx context.Context, e *console.Examination) error {
	return s.conn.Permitted(ctx, func(ctx context.Context) error {
		held, read, err := survey.Holdings(ctx, s.conn, setup.Plan(s.config()))
		for _, one := range held {
			e.Streams = append(e.Streams, console.Stream(one))
		}
		for _, one := range read {
			e.Consumers = append(e.Consumers, console.Consumer{
				Stream: one.Stream, Name: one.Name, Pending: one.Pending, Unacked: one.Unacked, Redelivered: one.Redelivered, Readers: one.Pulls,
				Delivered: one.Delivered, Paused: one.Paused,
			})
		}
		return err
	})
}

// asked is how many agents' workers are asked at once: each question waits for who answers late.
const asked = 16

// workers are those that answer for the agents of the configuration.
func (s *source) workers(ctx context.Context, e *console.Examination) error {
	specs := s.config().Agents
	told := make([]map[string]json.RawMessage, len(specs))
	err := s.conn.Permitted(ctx, func(ctx context.Context) error {
		asking, ctx := errgroup.WithContext(ctx)
		asking.SetLimit(asked)
		for i := range specs {
			asking.Go(func() (err error) {
				told[i], err = s.conn.Statistics(ctx, wire.NameToken(specs[i].Contract.Type))
				return err
			})
		}
		return asking.Wait()
	})
	for i := range specs {
		for _, id := range slices.Sorted(maps.Keys(told[i])) {
			var v worker.Vital
			if json.Unmarshal(told[i][id], &v) == nil { // else it is not a worker
				e.Workers = append(e.Workers, console.Worker{ID: id, Agent: specs[i].Name, Ahead: v.Ahead})
			}
		}
	}
	return err
}

// Connected implements console.Source.
func (s *source) Connected() bool { return s.conn.Connected() }

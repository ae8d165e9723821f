package reconcile

import (
	"context"
	"fmt"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state"
)

// mostArchived is how many steps one pass takes with journals on their way into archives: each has several requests.
const mostArchived = 10_000

// archiving are the runs of a page that have ended, for the store to archive at once.
type archiving struct {
	archiver state.Archiver
	ended    []state.Ended
	last     []*core.Entry
	// left is how many steps the pass may yet take.
	left int
}

// archives finds out whether the store has archives, and whether the broker can take them.
func (p *pass) archives(ctx context.Context) error {
	archiver, has := state.ArchiverOf(p.Store)
	if !has || !p.Everything {
		return nil
	}
	p.cooled = archiving{archiver: archiver, left: mostArchived}
	if p.Hot == 0 {
		return nil
	}
	var there bool
	err := p.Conn.Permitted(ctx, func(ctx context.Context) (err error) {
		there, err = p.Conn.HasStream(ctx, streams.Cold)
		return err
	})
	if err == nil && there {
		p.hot = p.Hot
		return nil
	}
	problem := "the stream for archives is missing: run agentd provision"
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		problem = err.Error()
	}
	return p.deal(ctx, Finding{Kind: HistoryHot, What: streams.Name(p.subjects, streams.Cold), Problem: problem}, nil)
}

// cool notes a run that has ended for the store to archive: its journal, if that has been there for long enough. Of a run that was purged an
// archive may be left.
func (p *pass) cool(s runner.StoredRun, e *core.Entry) {
	c := &p.cooled
	due := p.hot > 0 && p.now.Sub(time.UnixMilli(e.At)) > p.hot
	if c.archiver == nil || e.Head.Purged == nil && !due {
		return
	}
	c.ended = append(c.ended, state.Ended{Run: s.Run, Version: s.Last.Version, Purged: e.Head.Purged != nil})
	c.last = append(c.last, e)
}

// archive has the runs archived that were noted.
func (p *pass) archive(ctx context.Context) error {
	c := &p.cooled
	if len(c.ended) == 0 {
		return nil
	}
	done, err := c.archiver.Archive(ctx, c.ended, p.now, c.left, p.DryRun)
	if err != nil {
		return fmt.Errorf("archive journals: %w", err)
	}
	for i, a := range done {
		e := c.last[i]
		switch a.Step {
		case state.StepNone:
		case state.StepArchived:
			p.report.Archived++
		case state.StepThinned:
			p.report.Thinned++
		case state.StepDropped:
			if !p.DryRun { // whoever purged it was interrupted
				a.Err = p.withdraw(e)
			}
		}
		if a.Step != state.StepNone || a.Err != nil {
			c.left--
		}
		if a.Err != nil {
			f := Finding{Kind: HistoryHot, Agent: e.Head.Agent, Run: e.Head.Run, Problem: a.Err.Error()}
			if err := p.deal(ctx, f, nil); err != nil {
				return err
			}
		}
	}
	c.ended, c.last = nil, nil
	return nil
}

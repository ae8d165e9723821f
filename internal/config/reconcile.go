package config

import (
	"time"

	"agentd/internal/config/strict"
	"agentd/sdk"
)

// Reconcile says how workers look for runs that were lost (docs/reliability.md).
type Reconcile struct {
	// Interval is how often one of them does; 0 is never.
	Interval time.Duration
	// OlderThan is how old something must be before it counts as lost.
	OlderThan time.Duration
}

// Retention says how long runs are kept that are done.
type Retention struct {
	// History is how long they keep their history; 0 is for ever.
	History time.Duration
}

// shortestPeriod keeps a slip of the pen from loading the servers, and is the least that the broker's leases can do.
const shortestPeriod = time.Second

func defaultReconcile() Reconcile {
	return Reconcile{Interval: sdk.DefaultReconcile, OlderThan: sdk.DefaultLostAfter}
}

// parsePeriod reads a duration, or 0 for never or for ever.
func parsePeriod(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	d, err := strict.ParseDuration(text)
	if err != nil {
		return 0, sdk.Errorf(sdk.CodeConfig, "%s, or 0", err)
	}
	if d < shortestPeriod {
		return 0, sdk.Errorf(sdk.CodeConfig, "want at least %s, or 0, got %s", shortestPeriod, d)
	}
	return d, nil
}

func (l *loader) reconcile(f *file) {
	l.period(f.Reconcile.Interval, &l.cfg.Reconcile.Interval)
	setting(l, f.Reconcile.OlderThan, &l.cfg.Reconcile.OlderThan, checkOlderThan)
	l.period(f.Retention.History, &l.cfg.Retention.History)
}

// ParseOlderThan reads how old something must be before it counts as lost.
func ParseOlderThan(text string) (time.Duration, error) {
	d, err := strict.ParseDuration(text)
	if err != nil {
		return 0, err
	}
	return d, checkOlderThan(d)
}

func checkOlderThan(d time.Duration) error {
	if d < shortestPeriod {
		return sdk.Errorf(sdk.CodeConfig, "want at least %s, got %s", shortestPeriod, d)
	}
	return nil
}

func (l *loader) period(value words, target *time.Duration) {
	if !value.Present() {
		return
	}
	d, err := parsePeriod(value.V)
	if err != nil {
		l.Note(value.Position, err)
		return
	}
	*target = d
}

func (e *environment) period(name string, target *time.Duration) {
	value, ok := e.lookup(name)
	if !ok || value == "" {
		return
	}
	d, err := parsePeriod(value)
	if err != nil {
		e.Note(e.at(name), err)
		return
	}
	*target = d
}

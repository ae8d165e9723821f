package reconcile

import (
	"context"
	"time"

	"agentd/internal/retry"
)

const (
	// mostPasses bounds how many passes Until makes.
	mostPasses = 5
	// settling lies between two of them: workers take up what was repaired.
	settling = 2 * time.Second
)

// Passes sums up several passes: Found counts what is wrong once, however many of them found it. What was examined, what is unrepaired and
// what is too young is that of the last one.
type Passes struct {
	Report
	Made int `json:"passes"`
	// GoesOn says that the last pass still found something to repair.
	GoesOn bool `json:"goes_on"`
}

// Until makes passes until one finds nothing that it can repair, five at most: what was repaired may bring to light what else is lost. In
// a dry run it makes one. Then it removes what runs that have ended leave on the broker: Clear.
func Until(ctx context.Context, o Options) (Passes, error) {
	all := Passes{Report: Report{Found: map[Kind]int{}}}
	told, tell := map[Finding]bool{}, o.Found
	repaired := 0
	o.Found = func(f Finding) {
		if f.Problem == "" && f.Action != "" {
			repaired++
		}
		if told[f] {
			return
		}
		told[f] = true
		all.Found[f.Kind]++
		if tell != nil {
			tell(f)
		}
	}
	for {
		repaired = 0
		report, err := Run(ctx, o)
		report.Found, report.Purged, report.Removed = all.Found, report.Purged+all.Purged, report.Removed+all.Removed
		report.Archived, report.Thinned = report.Archived+all.Archived, report.Thinned+all.Thinned
		all.Report, all.GoesOn = report, repaired > 0 && !o.DryRun
		all.Made++
		if err != nil {
			return all, err
		}
		if !all.GoesOn || all.Made == mostPasses {
			cleared, err := Clear(ctx, o)
			all.Cleared, all.Unrepaired = cleared.Cleared, all.Unrepaired+cleared.Unrepaired
			return all, err
		}
		if err := retry.Sleep(ctx, settling); err != nil {
			return all, err
		}
	}
}

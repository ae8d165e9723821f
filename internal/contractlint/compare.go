package contractlint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"agentd/internal/clip"
	"agentd/internal/contracts"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Who is broken by a change.
const (
	breaksCallers   = "callers"
	breaksReaders   = "readers of answers"
	breaksPinned    = "agents and waiting runs pinned to it"
	breaksEverybody = "callers and services"
	breaksPolicies  = "permission policies that go by labels"
)

// Sides of a contract.
const (
	sideAccepts = "accepts"
	sideEmits   = "emits"
)

// Change is one difference between two states of a contract.
type Change struct {
	Severity schema.Severity `json:"severity"`
	// From and To are the versions that were compared. From is empty for a version that is new, To for one that is gone,
	// both are for what belongs to no version; they are equal when a version has other content.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Side is "accepts", "emits" followed by the type, or empty.
	Side string `json:"side,omitempty"`
	// Path is the place in the data, such as "$.flights[*].date".
	Path string `json:"path,omitempty"`
	// Breaks says who has to change something: at once when the change is Breaking, else with the step to version To.
	Breaks  string `json:"breaks,omitempty"`
	Message string `json:"message"`
}

// Compare lists what changes for others when proposed replaces published, the worst first. A version of the two with other
// content is always Breaking, however small the difference. A new version is compared with its neighbours among the
// versions that one range takes in (^1 of 1.4.0, ^0.2 of 0.2.7); what breaks from one such line to the next, or in a
// pre-release, is Compatible, because nobody gets it who did not ask for it.
func Compare(published, proposed sdk.Contract) []Change {
	changes := compareIdentity(published, proposed)
	for _, version := range contracts.Versions(published) {
		changes = append(changes, compareVersion(published, proposed, version)...)
	}
	for _, version := range contracts.Versions(proposed) {
		if _, ok := published.Versions[version]; !ok {
			changes = append(changes, Change{Severity: schema.Compatible, To: version, Message: "version " + version + " is new"})
		}
	}
	changes = append(changes, compareNeighbours(published, proposed)...)
	sortChanges(changes)
	return changes
}

func sortChanges(changes []Change) {
	order := []schema.Severity{schema.Breaking, schema.Compatible, schema.Editorial}
	slices.SortStableFunc(changes, func(a, b Change) int {
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
}

func compareIdentity(a, b sdk.Contract) []Change {
	if wire.SameURI(a.URI, b.URI) {
		b.URI = a.URI
	}
	var changes []Change
	for _, f := range []struct {
		name, from, to string
		change         Change
	}{
		{"uri", a.URI, b.URI, Change{Severity: schema.Breaking, Breaks: breaksEverybody}},
		{"type", a.Type, b.Type, Change{Severity: schema.Breaking, Breaks: breaksEverybody}},
		{"domain", a.Domain, b.Domain, Change{Severity: schema.Breaking, Breaks: breaksEverybody}},
		{"description", a.Description, b.Description, Change{Severity: schema.Editorial}},
	} {
		if f.from != f.to {
			f.change.Path = "$." + f.name
			f.change.Message = fmt.Sprintf("the %s changes from %q to %q", f.name, clip.Text(f.from, 80), clip.Text(f.to, 80))
			changes = append(changes, f.change)
		}
	}
	return append(changes, compareLabels(a.Labels, b.Labels)...)
}

// compareLabels tells of what permission policies may go by. Labels have no version, so they may change.
func compareLabels(a, b sdk.ToolLabels) []Change {
	if a == b {
		return nil
	}
	return []Change{{
		Severity: schema.Compatible, Path: "$.labels", Breaks: breaksPolicies,
		Message: fmt.Sprintf("the labels change from %s to %s, so policies may rule otherwise", labelsText(a), labelsText(b)),
	}}
}

func labelsText(l sdk.ToolLabels) string {
	var names []string
	for _, label := range []struct {
		name string
		set  bool
	}{{"read_only", l.ReadOnly}, {"destructive", l.Destructive}, {"open_world", l.OpenWorld}} {
		if label.set {
			names = append(names, label.name)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// compareVersion compares one version that is published with what is proposed under the same name.
func compareVersion(published, proposed sdk.Contract, version string) []Change {
	after, ok := proposed.Versions[version]
	if !ok {
		return []Change{{
			Severity: schema.Breaking, From: version, Breaks: breaksPinned, Message: "version " + version + " is removed",
		}}
	}
	before := published.Versions[version]
	changes := CompareVersions(before, after)
	if len(changes) == 0 && !contracts.SameContent(before, after) {
		changes = []Change{{Severity: schema.Editorial, Message: "what judges no value is other than it was"}}
	}
	next := nextVersion(version, changes, proposed.Versions)
	for i := range changes {
		c := &changes[i]
		c.From, c.To = version, version
		if c.Breaks == "" {
			c.Breaks = breaksPinned
		}
		c.Severity = schema.Breaking
		c.Message = fmt.Sprintf("%s; version %s is published and never changes: make it %s", c.Message, version, next)
	}
	return changes
}

// nextVersion is the first free version after one that the changes deserve.
func nextVersion(version string, changes []Change, taken map[string]sdk.ContractVersion) string {
	v, err := semver.StrictNewVersion(version)
	if err != nil {
		return "another version"
	}
	additions := slices.ContainsFunc(changes, func(c Change) bool { return c.Severity == schema.Compatible })
	raise := v.IncPatch
	switch {
	case hasBreaking(changes) && v.Major() > 0:
		raise = v.IncMajor
	case hasBreaking(changes), additions && v.Major() > 0:
		raise = v.IncMinor
	}
	next := raise()
	for _, ok := taken[next.String()]; ok; _, ok = taken[next.String()] {
		next = next.IncPatch()
	}
	return next.String()
}

// compareNeighbours compares the versions that follow each other when both are there, where one of the two is new.
func compareNeighbours(published, proposed sdk.Contract) []Change {
	var changes []Change
	versions := contracts.Versions(proposed)
	for i, to := range versions {
		from, sameLine := predecessor(versions[:i], to)
		if from == "" {
			continue
		}
		_, had := published.Versions[from]
		if _, hasTo := published.Versions[to]; had && hasTo {
			continue
		}
		changes = append(changes, compareStep(proposed, from, to, sameLine)...)
	}
	return changes
}

// compareStep compares two versions that follow each other, and holds the step to the rule of semantic versions.
func compareStep(contract sdk.Contract, from, to string, sameLine bool) []Change {
	changes := CompareVersions(contract.Versions[from], contract.Versions[to])
	next := nextVersion(from, changes, nil)
	additions := false
	for i := range changes {
		c := &changes[i]
		c.From, c.To = from, to
		switch {
		case c.Severity == schema.Breaking && sameLine:
			c.Message += fmt.Sprintf("; after %s that needs version %s", from, next)
		case c.Severity == schema.Breaking:
			c.Severity = schema.Compatible
			c.Message += fmt.Sprintf("; no range of %s takes in %s", from, to)
		case c.Severity == schema.Compatible:
			additions = true
		}
	}
	if sameLine && additions && isPatch(from, to) && !hasBreaking(changes) {
		changes = append(changes, Change{
			Severity: schema.Compatible, From: from, To: to,
			Message: fmt.Sprintf("version %s adds to %s: by the rules of semantic versions it would be %s", to, from, next),
		})
	}
	return changes
}

func hasBreaking(changes []Change) bool {
	return slices.ContainsFunc(changes, func(c Change) bool { return c.Severity == schema.Breaking })
}

// isPatch reports whether the step from one version to the next raises only the last number. Below 1.0.0
// additions do not have a smaller step.
func isPatch(from, to string) bool {
	v, errV := semver.StrictNewVersion(from)
	w, errW := semver.StrictNewVersion(to)
	return errV == nil && errW == nil && v.Major() > 0 && v.Major() == w.Major() && v.Minor() == w.Minor()
}

// predecessor is the version before to, and whether a range that begins at it takes in to as well.
func predecessor(older []string, to string) (from string, sameLine bool) {
	v, err := semver.StrictNewVersion(to)
	if err != nil {
		return "", false
	}
	for _, text := range slices.Backward(older) {
		w, err := semver.StrictNewVersion(text)
		if err != nil || w.Prerelease() != "" && v.Prerelease() == "" {
			continue
		}
		line, err := semver.NewConstraint("^" + text)
		return text, err == nil && line.Check(v)
	}
	return "", false
}

// CompareVersions lists what differs in what one version accepts and emits from what another does. From and To are left
// empty. What is Breaking is so for whoever goes from the one to the other without noticing.
func CompareVersions(from, to sdk.ContractVersion) []Change {
	changes := compareSide(sideAccepts, schema.Accepted, from.Accepts, to.Accepts)
	for _, emitted := range slices.Sorted(maps.Keys(from.Emits)) {
		side := sideEmits + " " + emitted
		after, ok := to.Emits[emitted]
		if !ok {
			changes = append(changes, Change{
				Severity: schema.Breaking, Side: side, Path: "$", Breaks: breaksReaders, Message: emitted + " is not emitted any more",
			})
			continue
		}
		changes = append(changes, compareSide(side, schema.Emitted, from.Emits[emitted], after)...)
	}
	for _, emitted := range slices.Sorted(maps.Keys(to.Emits)) {
		if _, ok := from.Emits[emitted]; !ok {
			changes = append(changes, Change{
				Severity: schema.Breaking, Side: sideEmits + " " + emitted, Path: "$", Breaks: breaksReaders,
				Message: emitted + " is emitted too, which readers do not know",
			})
		}
	}
	sortChanges(changes)
	return changes
}

func compareSide(side string, use schema.Use, from, to json.RawMessage) []Change {
	var changes []Change
	for _, d := range schema.Compare(use, from, to) {
		c := Change{Severity: d.Severity, Side: side, Path: d.Path, Message: d.Message}
		switch {
		case d.Severity != schema.Breaking:
		case use == schema.Accepted:
			c.Breaks = breaksCallers
		default:
			c.Breaks = breaksReaders
		}
		changes = append(changes, c)
	}
	return changes
}

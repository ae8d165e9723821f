package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"agentd/sdk"
)

// Position is a place in a file. Line and Column count from 1; Line 0 is the file as a whole.
type Position struct {
	File         string
	Line, Column int
}

func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	default:
		return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	}
}

// Fault is one thing that is wrong.
type Fault struct {
	Position
	Message string
}

func (f Fault) String() string { return f.Position.String() + ": " + f.Message }

// Faults is everything that is wrong, in order of place. As an error it has the code sdk.CodeConfig.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Files are those that the faults are in.
func (f Faults) Files() []string {
	var files []string
	for _, fault := range f {
		if !slices.Contains(files, fault.File) {
			files = append(files, fault.File)
		}
	}
	return files
}

// As makes every Faults an *sdk.Error of CodeConfig.
func (f Faults) As(target any) bool {
	e, ok := target.(**sdk.Error)
	if ok {
		*e = sdk.Errorf(sdk.CodeConfig, "%s", f.Error())
	}
	return ok
}

// Is reports whether target is an *sdk.Error of CodeConfig.
func (f Faults) Is(target error) bool {
	e, ok := target.(*sdk.Error)
	return ok && e.Code == sdk.CodeConfig
}

// Reader collects the faults of the files that it reads. It is not safe for concurrent use.
type Reader struct{ faults Faults }

// Faultf notes what is wrong at a place.
func (r *Reader) Faultf(at Position, format string, args ...any) {
	r.faults = append(r.faults, Fault{at, fmt.Sprintf(format, args...)})
}

// Note notes err at a value; each fault of an *sdk.Error becomes one of its own, where its path leads from there.
func (r *Reader) Note(n *Node, err error) {
	if err == nil {
		return
	}
	e := sdk.AsError(err)
	if e.Code == sdk.CodeInternal {
		r.Faultf(n.Position, "%s", err)
		return
	}
	for _, f := range e.Faults {
		r.Faultf(n.At(f.Path).Position, "%s", told(f))
	}
	if len(e.Faults) == 0 {
		r.Faultf(n.Position, "%s", e.Message)
	}
}

// told is a fault without the "$" of its path.
func told(f sdk.Fault) string {
	f.Path = strings.TrimPrefix(f.Path, "$")
	return strings.TrimPrefix(strings.TrimPrefix(f.String(), "."), ": ")
}

// Count is the number of faults so far, to tell whether a step added any.
func (r *Reader) Count() int { return len(r.faults) }

// Err returns all faults in order of place, each once, or nil.
func (r *Reader) Err() error {
	if len(r.faults) == 0 {
		return nil
	}
	faults := slices.Clone(r.faults)
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(faults)
}

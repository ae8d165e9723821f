package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"agentd/internal/toolbox"
	"agentd/internal/toolpattern"
	"agentd/sdk"
)

// constraintsHook is the name of the hook that holds runs to their agent's constraints.
const constraintsHook = "constraints"

// constraints hold the runs of an agent to what its spec says.
type constraints struct {
	sdk.Constraints
	changesNothing func(tool string) bool
	builtin        []string
}

// written is what a run keeps of what it was to write: digests of paths, where they are counted, and lines.
type written struct {
	Files []string `json:"files,omitempty"`
	Lines int      `json:"lines,omitempty"`
}

// constraintHooks are the hook that holds runs to the agent's constraints, where it has some.
func constraintHooks(spec sdk.AgentSpec, changesNothing func(tool string) bool) ([]sdk.Hook, error) {
	if spec.Constraints == nil {
		return nil, nil
	}
	if faults := constraintFaults(spec.Constraints); len(faults) > 0 {
		return nil, sdk.Errorf(sdk.CodeConfig, "constraints: %s", strings.Join(faults, "; "))
	}
	c := &constraints{*spec.Constraints, changesNothing, append(toolbox.BuiltinNames(), sdk.ToolReadMore)}
	return []sdk.Hook{{Name: constraintsHook, BeforeToolExecute: c.gate}}, nil
}

// constraintFaults is what is wrong with the constraints of an agent.
func constraintFaults(c *sdk.Constraints) []string {
	faults := patternFaults(c)
	f := c.Files
	if f == nil {
		return faults
	}
	for _, w := range f.Writers {
		if toolpattern.Check(w.Tool) != nil || w.Path == "" {
			faults = append(faults, fmt.Sprintf("files: a writer needs a pattern of tools, and the argument with the path; got %q and %q", w.Tool, w.Path))
		}
		if f.Lines > 0 && w.Content == "" {
			faults = append(faults, uncounted(w.Tool))
		}
	}
	if len(f.Writers) == 0 {
		faults = append(faults, "files: say which tools write files (writers)")
	}
	return faults
}

func uncounted(tool string) string {
	return fmt.Sprintf("files: the lines that %s writes cannot be counted without the argument with its content", tool)
}

// runConstraintFaults is what is wrong with the constraints of a run of an agent with these: which tools write files, the agent says.
func runConstraintFaults(agent *sdk.Constraints) func(*sdk.Constraints) []string {
	return func(run *sdk.Constraints) []string {
		faults := patternFaults(run)
		switch {
		case run.Files == nil:
		case len(run.Files.Writers) > 0:
			faults = append(faults, "files: which tools write files (writers) is for the agent to say")
		case agent.Files == nil:
			faults = append(faults, "files: the agent does not say which tools write files, so nothing could be counted")
		case run.Files.Lines > 0:
			for _, w := range agent.Files.Writers {
				if w.Content == "" {
					faults = append(faults, uncounted(w.Tool))
				}
			}
		}
		return faults
	}
}

// patternFaults is what is wrong with patterns and numbers.
func patternFaults(c *sdk.Constraints) []string {
	faults := emptyFaults("", c.Allow, c.Deny)
	for _, pattern := range slices.Concat(c.Allow, c.Deny) {
		if err := toolpattern.Check(pattern); err != nil {
			faults = append(faults, sdk.AsError(err).Message)
		}
	}
	f := c.Files
	if f == nil {
		return faults
	}
	faults = append(faults, emptyFaults("files: ", f.Allow, f.Deny)...)
	for _, pattern := range slices.Concat(f.Allow, f.Deny) {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			faults = append(faults, fmt.Sprintf(`files: %q cannot be read as a pattern of paths, such as "src/*.go"`, pattern))
		}
	}
	if f.Most < 0 || f.Most > sdk.MaxFiles || f.Lines < 0 {
		faults = append(faults, fmt.Sprintf("files: want at most %d files, and no fewer than 0 files or lines", sdk.MaxFiles))
	}
	return faults
}

// emptyFaults is what is wrong with lists of patterns that are there and have none: whoever writes them means something, and they would
// constrain nothing.
func emptyFaults(of string, allow, deny []string) []string {
	var faults []string
	if allow != nil && len(allow) == 0 {
		faults = append(faults, of+"allow is empty, and would constrain nothing: name what is allowed, or leave it out")
	}
	if deny != nil && len(deny) == 0 {
		faults = append(faults, of+"deny is empty, and would constrain nothing: name what is denied, or leave it out")
	}
	return faults
}

// gate blocks a call that violates a constraint, and counts what any other writes. A call that was held has been counted before.
func (c *constraints) gate(_ context.Context, attempt sdk.ToolAttempt) (sdk.Gate, error) {
	if slices.Contains(c.builtin, attempt.Tool) {
		return sdk.Gate{}, nil
	}
	for _, one := range c.all(attempt) {
		switch {
		case toolpattern.Match(one.Deny, attempt.Tool), len(one.Allow) > 0 && !toolpattern.Match(one.Allow, attempt.Tool):
			return violates(sdk.ViolationTool, "%s may not be called", attempt.Tool), nil
		case one.ReadOnly && !c.changesNothing(attempt.Tool):
			return violates(sdk.ViolationReadOnly, "nothing may be changed, and %s may change something", attempt.Tool), nil
		}
	}
	if c.Files == nil {
		return sdk.Gate{}, nil
	}
	i := slices.IndexFunc(c.Files.Writers, func(w sdk.FileWriter) bool { return toolpattern.Match([]string{w.Tool}, attempt.Tool) })
	if i < 0 {
		return sdk.Gate{}, nil
	}
	return c.writes(&c.Files.Writers[i], attempt)
}

// all are the agent's constraints and those of the run: a call has to keep to both.
func (c *constraints) all(attempt sdk.ToolAttempt) []sdk.Constraints {
	both := []sdk.Constraints{c.Constraints}
	if attempt.Constraints != nil {
		both = append(both, *attempt.Constraints)
	}
	return both
}

// least is the smallest of those numbers of the constraints that are not 0; 0 is that all are.
func least(all []sdk.Constraints, number func(*sdk.FileConstraints) int) int {
	smallest := 0
	for _, one := range all {
		if one.Files == nil {
			continue
		}
		if n := number(one.Files); n > 0 && (smallest == 0 || n < smallest) {
			smallest = n
		}
	}
	return smallest
}

func violates(v sdk.Violation, format string, args ...any) sdk.Gate {
	return sdk.Gate{Verdict: sdk.GateBlock, Reason: string(v) + ": " + fmt.Sprintf(format, args...)}
}

// writes judges a call that writes files.
func (c *constraints) writes(w *sdk.FileWriter, attempt sdk.ToolAttempt) (sdk.Gate, error) {
	var kept written
	var args map[string]any
	if len(attempt.State) > 0 {
		if err := json.Unmarshal(attempt.State, &kept); err != nil {
			return sdk.Gate{}, fmt.Errorf("read what the run has written: %w", err)
		}
	}
	if err := json.Unmarshal(attempt.Args, &args); err != nil {
		return sdk.Gate{}, fmt.Errorf("read arguments: %w", err)
	}
	all := c.all(attempt)
	mostFiles := least(all, func(f *sdk.FileConstraints) int { return f.Most })
	mostLines := least(all, func(f *sdk.FileConstraints) int { return f.Lines })
	paths := texts(args[w.Path])
	if len(paths) == 0 {
		return violates(sdk.ViolationPath, "the argument %s of %s names no file", w.Path, attempt.Tool), nil
	}
	for _, file := range paths {
		if slices.ContainsFunc(all, func(one sdk.Constraints) bool { return one.Files != nil && !mayWrite(one.Files, file) }) {
			return violates(sdk.ViolationPath, "%s may not be written", file), nil
		}
		if name := fileDigest(file); mostFiles > 0 && !slices.Contains(kept.Files, name) {
			kept.Files = append(kept.Files, name)
		}
	}
	if mostFiles > 0 && len(kept.Files) > mostFiles {
		return violates(sdk.ViolationFiles, "the run may write %d files, and this would be one more; go on with those that it has written", mostFiles), nil
	}
	if !attempt.Resumed {
		kept.Lines += lines(args[w.Content])
	}
	if mostLines > 0 && kept.Lines > mostLines {
		return violates(sdk.ViolationLines, "the run may write %d lines in all, and with these it would be %d", mostLines, kept.Lines), nil
	}
	state, err := json.Marshal(kept)
	return sdk.Gate{StateEffects: sdk.StateEffects{State: state}}, err
}

// mayWrite reports whether a file may be written by its path. What is denied is denied in whatever folder the path begins.
func mayWrite(c *sdk.FileConstraints, file string) bool {
	for tail, deeper := path.Clean(file), true; deeper; _, tail, deeper = strings.Cut(tail, "/") {
		if within(c.Deny, tail) {
			return false
		}
	}
	return len(c.Allow) == 0 || within(c.Allow, file)
}

// within reports whether a pattern matches the path, or a folder above it. What the path goes up again counts as gone up.
func within(patterns []string, file string) bool {
	for at := path.Clean(file); ; at = path.Dir(at) {
		for _, pattern := range patterns {
			if matched, err := path.Match(path.Clean(pattern), at); err == nil && matched {
				return true
			}
		}
		if at == path.Dir(at) {
			return false
		}
	}
}

// fileDigest is what a run keeps of a path: so much that no two of one run are equal.
func fileDigest(file string) string {
	sum := sha256.Sum256([]byte(path.Clean(file)))
	return hex.EncodeToString(sum[:8])
}

// texts are a text, or all texts in a list or an object.
func texts(value any) []string {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, item := range v {
			all = append(all, texts(item)...)
		}
		return all
	case map[string]any:
		var all []string
		for _, item := range v {
			all = append(all, texts(item)...)
		}
		return all
	}
	return nil
}

// lines is how many lines there are in the texts of an argument.
func lines(content any) int {
	n := 0
	for _, text := range texts(content) {
		n += strings.Count(text, "\n")
		if text != "" && !strings.HasSuffix(text, "\n") {
			n++
		}
	}
	return n
}

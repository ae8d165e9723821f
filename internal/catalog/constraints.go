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

func constraintFaults(c *sdk.Constraints) []string {
	var faults []string
	for _, pattern := range slices.Concat(c.Allow, c.Deny) {
		if err := toolpattern.Check(pattern); err != nil {
			faults = append(faults, sdk.AsError(err).Message)
		}
	}
	f := c.Files
	if f == nil {
		return faults
	}
	for _, pattern := range slices.Concat(f.Allow, f.Deny) {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			faults = append(faults, fmt.Sprintf(`files: %q cannot be read as a pattern of paths, such as "src/*.go"`, pattern))
		}
	}
	for _, w := range f.Writers {
		if toolpattern.Check(w.Tool) != nil || w.Path == "" {
			faults = append(faults, fmt.Sprintf("files: a writer needs a pattern of tools, and the argument with the path; got %q and %q", w.Tool, w.Path))
		}
		if f.Lines > 0 && w.Content == "" {
			faults = append(faults, fmt.Sprintf("files: the lines that %s writes cannot be counted without the argument with its content", w.Tool))
		}
	}
	if len(f.Writers) == 0 {
		faults = append(faults, "files: say which tools write files (writers)")
	}
	if f.Most < 0 || f.Most > sdk.MaxFiles || f.Lines < 0 {
		faults = append(faults, fmt.Sprintf("files: want at most %d files, and no fewer than 0 files or lines", sdk.MaxFiles))
	}
	return faults
}

// gate blocks a call that violates a constraint, and counts what any other writes. A call that was held has been counted before.
func (c *constraints) gate(_ context.Context, attempt sdk.ToolAttempt) (sdk.Gate, error) {
	if slices.Contains(c.builtin, attempt.Tool) {
		return sdk.Gate{}, nil
	}
	switch {
	case toolpattern.Match(c.Deny, attempt.Tool), len(c.Allow) > 0 && !toolpattern.Match(c.Allow, attempt.Tool):
		return violates(sdk.ViolationTool, "%s may not be called", attempt.Tool), nil
	case c.ReadOnly && !c.changesNothing(attempt.Tool):
		return violates(sdk.ViolationReadOnly, "nothing may be changed, and %s may change something", attempt.Tool), nil
	case c.Files == nil:
		return sdk.Gate{}, nil
	}
	i := slices.IndexFunc(c.Files.Writers, func(w sdk.FileWriter) bool { return toolpattern.Match([]string{w.Tool}, attempt.Tool) })
	if i < 0 {
		return sdk.Gate{}, nil
	}
	return c.writes(&c.Files.Writers[i], attempt)
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
	paths := texts(args[w.Path])
	if len(paths) == 0 {
		return violates(sdk.ViolationPath, "the argument %s of %s names no file", w.Path, attempt.Tool), nil
	}
	for _, file := range paths {
		if !mayWrite(c.Files, file) {
			return violates(sdk.ViolationPath, "%s may not be written", file), nil
		}
		if name := fileDigest(file); c.Files.Most > 0 && !slices.Contains(kept.Files, name) {
			kept.Files = append(kept.Files, name)
		}
	}
	if most := c.Files.Most; most > 0 && len(kept.Files) > most {
		return violates(sdk.ViolationFiles, "the run may write %d files, and this would be one more; go on with those that it has written", most), nil
	}
	if !attempt.Resumed {
		kept.Lines += lines(args[w.Content])
	}
	if most := c.Files.Lines; most > 0 && kept.Lines > most {
		return violates(sdk.ViolationLines, "the run may write %d lines in all, and with these it would be %d", most, kept.Lines), nil
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

package sdk

// Constraints bound what the calls of a run may do where nobody watches it. A call that violates one is not made, and its result says
// which. How much a run may use, of tokens and of time, Limits say.
type Constraints struct {
	// Allow are patterns of the tools that may be called, all without any; Deny are those of tools that may not, whatever Allow says. The
	// built-in tools may always be called: a run needs them to end, and to ask.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	// ReadOnly refuses the tools that are not known to change nothing, by their label or by Guards.ReadOnly.
	ReadOnly bool `json:"read_only,omitempty"`
	// Files bound what the calls of a run write into files; nil does not.
	Files *FileConstraints `json:"files,omitempty"`
}

// FileConstraints bound what the calls of a run write into files.
type FileConstraints struct {
	// Writers are the tools that write files. The first whose Tool matches counts.
	Writers []FileWriter `json:"writers"`
	// Most is how many files the run may write, at most MaxFiles, and Lines how many lines in all; 0 is any number. What was to be written
	// counts, also when the call was denied or failed.
	Most  int `json:"most,omitempty"`
	Lines int `json:"lines,omitempty"`
	// Allow are patterns of the paths that may be written, all without any; Deny are those of paths that may not, whatever Allow says. A
	// pattern, of the form of path.Match, is that of a file, or of a folder with all that is in it; one of Deny also within any folder.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// MaxFiles bounds FileConstraints.Most: a run keeps which files it has written.
const MaxFiles = 150

// FileWriter says what calls of a tool write.
type FileWriter struct {
	// Tool is a pattern of its name.
	Tool string `json:"tool"`
	// Path is the argument with the path of the file, or a list of paths.
	Path string `json:"path"`
	// Content is the argument with what is written: text, or anything that has texts in it. Without it no lines are counted.
	Content string `json:"content,omitempty"`
}

// Violation names a constraint that a call violates. The reason in the result of such a call begins with it.
type Violation string

// The violations.
const (
	ViolationTool     Violation = "tool_restriction"
	ViolationReadOnly Violation = "read_only_mode"
	ViolationPath     Violation = "file_pattern"
	ViolationFiles    Violation = "file_count"
	ViolationLines    Violation = "line_count"
)

package wire

// MaxUndo is how many calls of a run are undone at once.
const MaxUndo = 32

// UndoCall is a call of a run that can be undone, is to be, or was.
type UndoCall struct {
	// Call and Tool are those of the call itself.
	Call string `json:"call"`
	Tool string `json:"tool"`
	// By is the id of the call that undoes it; empty is that none was made.
	By string `json:"by,omitempty"`
	// Outcome is empty as long as nobody knows.
	Outcome UndoOutcome `json:"outcome,omitempty"`
	// Message says why the call was not undone, or why that is unknown.
	Message string `json:"message,omitempty"`
}

// UndoOutcome says whether a call was undone.
type UndoOutcome string

// The outcomes. Only a call that is not undone can be undone by a later request.
const (
	UndoDone    UndoOutcome = "undone"
	UndoFailed  UndoOutcome = "not_undone" // the call that undoes it was not made, or failed
	UndoUnknown UndoOutcome = "unknown"    // whether the call that undoes it took effect is not known
)

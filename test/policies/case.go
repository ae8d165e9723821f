package policies

// policy is an agent's policy; its rules are tried in order, and what none matches is allowed.
type policy struct {
	rules   []rule
	general terms
}

type rule struct {
	tools   []string
	label   string
	when    condition
	verdict string // allow, ask or deny
	own     *terms // in place of the policy's, where they are set
}

// condition compares one argument: it is at least n, or text where there is one. The zero condition always holds.
type condition struct {
	field, text string
	n           float64
}

type terms struct {
	retry     bool
	batch     bool
	stages    []stage
	scopes    []string
	quorum    int
	fourEyes  bool
	approvers []string
}

// stage is a domain that is asked, and for how many milliseconds.
type stage struct {
	domain  string
	timeout int64
}

type call struct {
	id, agent, run, initiator, tool, label string
	args                                   map[string]any
	raw                                    string // of the arguments
}

// request is what people were asked: the call, the terms of all who wanted to ask, and when the event went to which domain.
type request struct {
	call
	terms     []terms
	retry     bool
	sent      []stage // with the time at which it was sent in place of the timeout
	decisions []*decision
	// made are the arguments that the call was made with, empty before.
	made string
}

// decision is what somebody published; seen says that it names the arguments that were asked for, late that it does not count: its publisher
// was told so, or it edits the arguments of what somebody had denied. edited is empty unless it has other arguments.
type decision struct {
	at                     int64
	who, domain            string
	verdict, scope, edited string
	seen, late             bool
	pattern                condition
	uses                   int
	stage                  int // whose request it answers
	expires                int64
}

// outcome is what came of a request: of the decisions that counted the last, who allowed it, and at which of its stages.
type outcome struct {
	decision
	decided, allowed bool
	by               []string
	stage            int
}

// holds is known when the argument is there.
func (c condition) holds(args map[string]any) (yes, known bool) {
	value, there := args[c.field]
	if c.field == "" || !there {
		return true, c.field == ""
	}
	if n, isNumber := value.(float64); isNumber {
		return n >= c.n, true
	}
	return value == c.text, true
}

package sdk

// Guards correct a model whose calls lead nowhere, before a stop condition ends its run. What they count is part of the run. A number of 0
// is a guard that is off.
type Guards struct {
	// Errors is after how many rounds in a row of which every call failed the model is told what to do about that.
	Errors int `json:"errors,omitempty"`
	// Failures is after how many rounds in a row in which a tool failed it is withdrawn for the rest of the run: it is not offered any
	// more, and calls of it are refused with the reason. Tools that the run ends with are not.
	Failures int `json:"failures,omitempty"`
	// Duplicates is after how many rounds in a row of nothing but duplicates the model is asked for its final answer. A duplicate is a
	// call of a tool that changes nothing, with the arguments of an earlier one, since which nothing has changed: it is not made, and
	// has the result of the earlier one.
	Duplicates int `json:"duplicates,omitempty"`
	// ReadOnly are patterns of tools that change nothing, beside those whose label says so, and Changing those of tools whose results
	// become others by themselves, such as the state of a job: their calls are never duplicates.
	ReadOnly []string `json:"read_only,omitempty"`
	Changing []string `json:"changing,omitempty"`
}

// SmallModelGuards are those that small models need.
var SmallModelGuards = Guards{Errors: 2, Failures: 3, Duplicates: 2}

package console

import (
	"context"
	"net/url"
	"strings"
	"time"

	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// start starts a run of an agent, with what was filled in.
func (c *console) start(r *request) (*view, error) {
	spec, err := c.spec(r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	accepts := spec.Contract.Versions[spec.Version].Accepts
	input, err := newForm(accepts, nil).read(r.PostForm)
	if err != nil {
		return nil, err
	}
	compiled, err := schema.Compile(accepts)
	if err != nil {
		return nil, err
	}
	input, faults := compiled.Admit(input)
	if len(faults) > 0 {
		return nil, &sdk.Error{Code: sdk.CodeContractViolation, Message: "the agent does not take this", Faults: faults}
	}
	run, err := r.runs().Start(r.Context(), client.Request{
		Agent: spec.Name, Input: input, Name: strings.TrimSpace(r.PostFormValue("name")), Type: spec.Contract.Type,
		// The key is that of the form: who sends it twice starts one run.
		Key: strings.TrimSpace(r.PostFormValue("key")),
	})
	if err != nil {
		return nil, err
	}
	// The page of the run is there when a worker has taken it up.
	if err := c.begun(r, run); err != nil {
		return nil, err
	}
	return &view{To: address(run.Name, "started")}, nil
}

// begins is how long a page waits for a run to begin.
const begins = 10 * time.Second

// begun waits until the run is there.
func (c *console) begun(r *request, run client.Run) error {
	ctx, stop := context.WithTimeout(r.Context(), begins)
	defer stop()
	for l, err := range c.Runs.Follow(ctx, run, wire.Mark{}) {
		if err != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "the run %s is stored, and no worker of %s has begun it yet; it begins when one comes", run.Name, run.Agent)
		}
		if !l.Ephemeral {
			return nil
		}
	}
	return nil
}

// address is the page of a run after an action.
func address(run, told string) string { return "/runs/" + url.PathEscape(run) + "?told=" + told }

// steer does something to a run.
func (c *console) steer(r *request) (*view, error) {
	run, err := c.find(r.Context(), r.PathValue("run"))
	if err != nil {
		return nil, err
	}
	reason := strings.TrimSpace(r.PostFormValue("reason"))
	var taken bool
	runs := r.runs()
	told := map[bool]string{false: "later"}
	switch r.PathValue("verb") {
	case "send":
		told = map[bool]string{true: "sent", false: "sent-later"}
		taken, err = runs.Send(r.Context(), run, strings.ReplaceAll(r.PostFormValue("message"), "\r\n", "\n"))
	case "pause":
		told[true] = toldPaused
		taken, err = runs.Pause(r.Context(), run, reason)
	case "resume":
		told[true] = "resumed"
		taken, err = runs.Resume(r.Context(), run)
	case "unpark":
		told[true] = "unparked"
		taken, err = runs.Unpark(r.Context(), run)
	case "retry":
		told[true] = "retried"
		_, taken, err = runs.Retry(r.Context(), run)
	case "cancel":
		told[true] = "cancelled"
		taken, err = true, runs.Cancel(r.Context(), run, reason)
	default:
		return nil, notFound("a run cannot be asked for that")
	}
	if err != nil {
		return nil, err
	}
	return &view{To: address(run.Name, told[taken])}, nil
}

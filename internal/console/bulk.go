package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"agentd/internal/bulk"
	"agentd/internal/index"
	"agentd/internal/show"
	"agentd/sdk"
)

// Jobs do one thing with many runs. Methods are safe for concurrent use.
type Jobs interface {
	// Propose makes a job and finds its runs; where that takes long, it returns before it is done. List are all jobs, the newest first, Get is one
	// of them, and Results is what became of its runs, in pieces.
	Propose(ctx context.Context, r bulk.Request) (*bulk.Job, error)
	List(ctx context.Context) ([]*bulk.Job, error)
	Get(ctx context.Context, id string) (*bulk.Job, error)
	Results(ctx context.Context, job *bulk.Job, each func([]bulk.Result) error) error
	// Begin confirms a job with how many runs it has, and Continue goes on with one whose program is gone. Both return at once: the job is
	// carried out as long as the console is open. Held reports whether a program carries it out.
	Begin(ctx context.Context, job *bulk.Job, runs int) error
	Continue(ctx context.Context, job *bulk.Job) error
	Held(job *bulk.Job) bool
	// Stop has a job do nothing more, until it is begun again.
	Stop(ctx context.Context, job *bulk.Job) error
}

// verbs are what may be done with many runs, in words.
var verbs = []struct {
	Verb bulk.Verb
	Name string
}{
	{bulk.VerbCancel, "Cancel them"},
	{bulk.VerbPause, "Pause them"},
	{bulk.VerbResume, "Resume them"},
	{bulk.VerbRetry, "Retry them from where they ended"},
	{bulk.VerbMessage, "Send them a message"},
	{bulk.VerbTag, "Give them tags"},
	{bulk.VerbPurge, "Remove their histories for good"},
}

func verbText(v bulk.Verb) string {
	for _, one := range verbs {
		if one.Verb == v {
			return one.Name
		}
	}
	if v == bulk.VerbRedrive {
		return "Redrive dead letters" // proposed on the command line
	}
	return string(v)
}

type bulkPage struct {
	Jobs []jobRow
	// Query, Verb, Said and Rate are what the form has.
	Query, Said, Rate string
	Verb              bulk.Verb
	Verbs             []verbChoice
	MaxRate, MaxRuns  int
	// Problem and Faults say why no job was made.
	Problem string
	Faults  []string
}

type verbChoice struct {
	Value  bulk.Verb
	Name   string
	Chosen bool
}

type jobRow struct {
	*bulk.Job
	Address, What string
}

// bulkForm is the page with a form that is filled in with these values.
func (c *console) bulkForm(r *request, values url.Values, problem error) (*view, error) {
	p := &bulkPage{Query: values.Get("q"), Said: values.Get("said"), Rate: values.Get("rate"), MaxRate: bulk.MaxRate, MaxRuns: bulk.MaxRuns}
	if p.Rate == "" {
		p.Rate = strconv.Itoa(bulk.DefaultRate)
	}
	for _, one := range verbs {
		p.Verbs = append(p.Verbs, verbChoice{one.Verb, one.Name, string(one.Verb) == values.Get("verb")})
	}
	v := &view{Title: "Many runs", Template: "bulk", Place: placeRuns, Data: p}
	if problem != nil {
		e := sdk.AsError(problem)
		v.Status, p.Problem = http.StatusUnprocessableEntity, "Nothing was looked up: "+e.Message
		for _, f := range e.Faults {
			p.Faults = append(p.Faults, f.String())
		}
	}
	jobs, err := c.Jobs.List(r.Context())
	for _, job := range jobs {
		p.Jobs = append(p.Jobs, jobRow{job, jobAddress(job.ID), verbText(job.Verb)})
	}
	return v, err
}

func (c *console) bulk(r *request) (*view, error) { return c.bulkForm(r, r.URL.Query(), nil) }

func jobAddress(id string) string { return "/bulk/" + url.PathEscape(id) }

// propose finds the runs of a job. Nothing is done to them yet.
func (c *console) propose(r *request) (*view, error) {
	filter, err := index.ParseFilter(r.PostFormValue("q"))
	if err != nil {
		return c.bulkForm(r, r.PostForm, err)
	}
	rate, err := strconv.Atoi(strings.TrimSpace(r.PostFormValue("rate")))
	if err != nil || rate < 1 {
		return c.bulkForm(r, r.PostForm, sdk.Errorf(sdk.CodeContractViolation, "the rate is 1 to %d runs a second", bulk.MaxRate))
	}
	job, err := c.Jobs.Propose(r.Context(), bulk.Request{
		Verb: bulk.Verb(r.PostFormValue("verb")), Filter: filter, Rate: rate, Who: r.user.Who,
		Said: strings.TrimSpace(strings.ReplaceAll(r.PostFormValue("said"), "\r\n", "\n")),
	})
	if e := sdk.AsError(err); err != nil && (e.Code == sdk.CodeContractViolation || e.Code == sdk.CodeTooLarge) {
		return c.bulkForm(r, r.PostForm, err)
	}
	if err != nil {
		return nil, err
	}
	return &view{To: jobAddress(job.ID)}, nil
}

// jobPage is a job as it is now.
type jobPage struct {
	*bulk.Job
	What, Address string
	// Did is how many runs are through, Came how many came to what, and More how many runs Samples does not name.
	Did  int
	Came []index.Count
	More int
	// Live is the address of what changes, while something does. Orphan says that nobody carries it out, or finds its runs, although it is to go on.
	Live   string
	Orphan bool
	// Notable are runs that it was not done to, and why; Others says that there are further ones.
	Notable []bulk.Result
	Others  bool
}

// notableShown is how many runs that something was not done to a page names.
const notableShown = 100

// errShown ends the reading of results.
var errShown = errors.New("the page has enough")

func (c *console) jobPage(ctx context.Context, id string) (*jobPage, error) {
	job, err := c.Jobs.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	p := &jobPage{Job: job, What: verbText(job.Verb), Address: jobAddress(job.ID), More: job.Runs - len(job.Samples)}
	for _, outcome := range slices.Sorted(maps.Keys(job.Counts)) {
		p.Came = append(p.Came, index.Count{Value: string(outcome), N: job.Counts[outcome]})
		p.Did += job.Counts[outcome]
	}
	if job.State == bulk.Running || job.State == bulk.Finding {
		p.Orphan = !c.Jobs.Held(job)
		p.Live = "/live/bulk/" + url.PathEscape(job.ID) + "?said=" + url.QueryEscape(p.said())
		return p, nil
	}
	if job.Counts[bulk.Skipped]+job.Counts[bulk.Failed] == 0 {
		return p, nil
	}
	err = c.Jobs.Results(ctx, job, func(results []bulk.Result) error {
		for _, result := range results {
			if result.Outcome != bulk.Skipped && result.Outcome != bulk.Failed {
				continue
			}
			if p.Others = len(p.Notable) == notableShown; p.Others {
				return errShown
			}
			p.Notable = append(p.Notable, result)
		}
		return nil
	})
	if errors.Is(err, errShown) {
		err = nil
	}
	return p, err
}

// said is what the page says of how far the job is.
func (p *jobPage) said() string {
	did := p.Did
	if p.State == bulk.Finding {
		did = p.Runs
	}
	return string(p.State) + " " + strconv.Itoa(did) + " " + strconv.FormatBool(p.Orphan)
}

func (c *console) job(r *request) (*view, error) {
	p, err := c.jobPage(r.Context(), r.PathValue("job"))
	if err != nil {
		return nil, err
	}
	return &view{Title: "Many runs: " + show.Line(p.ID, shortLength), Template: "job", Place: placeRuns, Data: p}, nil
}

// direct begins, continues or stops a job.
func (c *console) direct(r *request) (*view, error) {
	job, err := c.Jobs.Get(r.Context(), r.PathValue("job"))
	if err != nil {
		return nil, err
	}
	switch r.PathValue("verb") {
	case "begin":
		n, bad := strconv.Atoi(strings.TrimSpace(r.PostFormValue("number")))
		if bad != nil {
			return nil, sdk.Errorf(sdk.CodeContractViolation, "write how many runs the job has, %d, to confirm it", job.Runs)
		}
		err = c.Jobs.Begin(r.Context(), job, n)
	case "continue":
		err = c.Jobs.Continue(r.Context(), job)
	case "stop":
		err = c.Jobs.Stop(r.Context(), job)
	default:
		return nil, notFound("a job cannot be asked for that")
	}
	return &view{To: jobAddress(job.ID)}, err
}

// liveJob sends how far a job is when that is not what the page says already.
func (c *console) liveJob(w http.ResponseWriter, r *http.Request) {
	ctx, stop := context.WithTimeout(r.Context(), pageTimeout)
	defer stop()
	if u := userOf(r); !u.Operator {
		http.Error(w, "this console is read-only", http.StatusForbidden)
		return
	}
	p, err := c.jobPage(ctx, r.PathValue("job"))
	if err != nil {
		c.refuse(w, err)
		return
	}
	if p.said() == r.URL.Query().Get("said") {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if strings.HasPrefix(r.URL.Query().Get("said"), string(bulk.Finding)+" ") && p.State != bulk.Finding {
		w.Header().Set("HX-Refresh", "true") // other parts of the page name the runs that were found
	}
	c.sendPart(w, "job", p)
}

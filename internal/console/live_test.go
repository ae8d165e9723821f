package console_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"agentd/internal/bulk"
	"agentd/internal/console"
	"agentd/internal/index"
)

// brokenJobs fails in a way that has no code of its own.
type brokenJobs struct{ console.Jobs }

func (brokenJobs) Get(context.Context, string) (*bulk.Job, error) { return nil, errors.New("no disk") }

// A failure without a code is an answer, and does not say what is inside.
func TestLive_AnswersFailuresWithoutACode(t *testing.T) {
	t.Parallel()
	h := console.Handler(console.Options{Jobs: brokenJobs{}, Who: "anna", Logger: slog.New(slog.DiscardHandler)})
	got := httptest.NewRecorder()
	h.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/live/bulk/x", nil))
	if got.Code != http.StatusInternalServerError || got.Body.String() != "internal error\n" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// oneJob is the only job that there is.
type oneJob struct {
	console.Jobs
	job  bulk.Job
	held bool
}

func (j *oneJob) Get(context.Context, string) (*bulk.Job, error) {
	job := j.job
	return &job, nil
}

func (j *oneJob) Held(*bulk.Job) bool { return j.held }

// While the runs of a job are being found its page says how many there are so far, and is loaded again when they are: other parts of it name them.
func TestBulk_SaysThatRunsAreBeingFound(t *testing.T) {
	t.Parallel()
	filter, err := index.ParseFilter("run:*")
	if err != nil {
		t.Fatal(err)
	}
	jobs := &oneJob{held: true, job: bulk.Job{ID: "aaaaaaaaaa", Request: bulk.Request{Verb: bulk.VerbCancel, Filter: filter, Rate: 20}, State: bulk.Finding, Runs: 300}}
	h := console.Handler(console.Options{Jobs: jobs, Who: "anna", Logger: slog.New(slog.DiscardHandler)})
	get := func(said string) *httptest.ResponseRecorder {
		got := httptest.NewRecorder()
		h.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/live/bulk/aaaaaaaaaa?said="+url.QueryEscape(said), nil))
		return got
	}
	const again = `href="/bulk?q=run%3a%2a&amp;verb=cancel&amp;said=&amp;rate=20"`
	for _, step := range []struct {
		do      func()
		said    string
		status  int
		refresh string
		has     []string
	}{
		{func() {}, "", http.StatusOK, "", []string{"The runs are being counted", "300 so far", `hx-trigger="every 1s"`}},
		{func() {}, "finding 300 false", http.StatusNoContent, "", nil},
		{func() { jobs.job.Runs = 400 }, "finding 300 false", http.StatusOK, "", []string{"400 so far"}},
		{func() { jobs.held = false }, "finding 400 false", http.StatusOK, "", []string{"No program looks for the runs any more", again}},
		{func() { jobs.job.State, jobs.job.Problem = bulk.Unfound, "<too many>" }, "finding 400 true", http.StatusOK, "true", []string{"The runs were not found", "&lt;too many&gt;", again}},
		{func() { jobs.job.State, jobs.job.Problem = bulk.Proposed, "" }, "finding 400 true", http.StatusOK, "true", []string{"Write 400 to begin"}},
		{func() {}, "", http.StatusOK, "", []string{"Write 400 to begin"}},
	} {
		step.do()
		got := get(step.said)
		if got.Code != step.status || got.Header().Get("HX-Refresh") != step.refresh {
			t.Errorf("after %q: %d, refresh %q; want %d, %q", step.said, got.Code, got.Header().Get("HX-Refresh"), step.status, step.refresh)
		}
		contains(t, got.Body.String(), step.has...)
		if jobs.job.State != bulk.Proposed && strings.Contains(got.Body.String(), "to begin") {
			t.Errorf("it can be begun: %s", got.Body)
		}
	}
}

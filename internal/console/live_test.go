package console_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"agentd/internal/bulk"
	"agentd/internal/console"
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

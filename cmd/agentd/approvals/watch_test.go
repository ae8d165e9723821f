package approvals

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/requests"
)

// still is a desk at which nothing changes any more.
type still struct{ failed chan error }

func (still) Number() uint64 { return 0 }

func (still) List() []requests.Item { return []requests.Item{{ID: "c1-0", Agent: "clerk", Run: "one"}} }

func (still) Changes(ctx context.Context, _ uint64) ([]requests.Change, bool, error) {
	<-ctx.Done()
	return nil, true, ctx.Err()
}

func (d still) Failed() <-chan error { return d.failed }

// A desk that can read no more is not watched for ever, and whoever interrupts it has not failed.
func TestWatch_EndsWithItsDesk(t *testing.T) {
	t.Parallel()
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	for name, c := range map[string]struct {
		ctx    context.Context
		failed chan error
		want   string
	}{
		"interrupted": {interrupted, make(chan error), ""},
		"failed":      {t.Context(), make(chan error, 1), "what waits for people can be read no more: no rights"},
	} {
		if c.want != "" {
			c.failed <- errors.New("no rights")
		}
		var out bytes.Buffer
		got := ""
		if err := watch(c.ctx, &cli.App{Streams: cli.Streams{Out: &out, Err: &bytes.Buffer{}}}, still{c.failed}); err != nil {
			got = err.Error()
		}
		if got != c.want || !strings.Contains(out.String(), "clerk") {
			t.Errorf("%s: it ends with %q, want %q, and prints %q", name, got, c.want, out.String())
		}
	}
}

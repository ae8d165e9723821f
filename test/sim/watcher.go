package sim

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"agentd/internal/core"
)

// watcher is the log of the workers: an input that the core takes for a bug is one.
type watcher struct{ *simulation }

// Enabled implements slog.Handler, as do the methods that follow.
func (w watcher) Enabled(context.Context, slog.Level) bool { return true }

func (w watcher) Handle(_ context.Context, r slog.Record) error {
	if w.dying {
		return nil
	}
	line := r.Message
	if w.calmSince > 0 && w.now > w.calmSince+silence && !w.hung && strings.HasPrefix(line, "activation hangs") {
		w.violate("I11", "an activation hangs though nothing is in its way")
	}
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && errors.Is(err, core.ErrIllegal) {
			w.violate("illegal", "%v", err)
		}
		if w.log != nil {
			// A stack, which differs from play to play, follows on further lines.
			first, _, _ := strings.Cut(a.String(), "\n")
			line += " " + first
		}
		return true
	})
	w.trace("log     %s", line)
	return nil
}

func (w watcher) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w watcher) WithGroup(string) slog.Handler { return w }

package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"agentd/internal/desk"
	"agentd/internal/requests"
	"agentd/sdk"
)

// epoch is in the ids of events: the changes of another process have other numbers.
var epoch = strings.ToLower(rand.Text())

const (
	// keepAlive is how often something is sent to a client when nothing happens, so that both ends notice a dead connection.
	keepAlive = 15 * time.Second
	// sendTimeout is how long one piece may take to be sent.
	sendTimeout = 10 * time.Second
	// eventReset tells a client to forget what it has: everything that is open follows.
	eventReset = "reset"
)

// events sends changes as server-sent events. A client that presents the id of the last event that it saw gets those after
// it; any other, and one that missed too many, gets a reset and then all that is open.
func (a api) events(w http.ResponseWriter, r *http.Request) {
	s := &stream{control: http.NewResponseController(w), w: w, desk: a.Desk}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	after, known := seen(r.Header.Get("Last-Event-ID"))
	if err := s.run(r.Context(), after, known); err != nil && r.Context().Err() == nil {
		a.Logger.Debug("events could not be sent", "error", err)
	}
}

// seen is the number in the id of an event of this process.
func seen(id string) (number uint64, ok bool) {
	rest, ok := strings.CutPrefix(id, epoch+"-")
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(rest, 10, 64)
	return number, err == nil
}

// stream is one client's.
type stream struct {
	control *http.ResponseController
	w       http.ResponseWriter
	desk    *desk.Desk
}

func (s *stream) run(ctx context.Context, after uint64, known bool) error {
	if !known {
		var err error
		if after, err = s.reset(); err != nil {
			return err
		}
	}
	for {
		waiting, cancel := context.WithTimeout(ctx, keepAlive)
		changes, ok, err := s.desk.Changes(waiting, after)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			if err := s.write(": still here\n\n"); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		case !ok:
			if after, err = s.reset(); err != nil {
				return err
			}
			continue
		}
		for _, c := range changes {
			if err := s.send(string(c.Kind), c.Number, c); err != nil {
				return err
			}
			after = c.Number
		}
	}
}

// reset sends all that is open, and returns the number of the last change that it contains. A change that comes meanwhile
// is sent again afterwards, which is harmless.
func (s *stream) reset() (uint64, error) {
	number := s.desk.Number()
	items := s.desk.List()
	if items == nil {
		items = []requests.Item{}
	}
	return number, s.send(eventReset, number, map[string]any{"requests": items})
}

func (s *stream) send(kind string, number uint64, data any) error {
	encoded, err := json.Marshal(data) // has no line feeds
	if err != nil {
		return sdk.Errorf(sdk.CodeInternal, "encode event").WithCause(err)
	}
	return s.write(fmt.Sprintf("event: %s\nid: %s-%d\ndata: %s\n\n", kind, epoch, number, encoded))
}

func (s *stream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("bound the time to send: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

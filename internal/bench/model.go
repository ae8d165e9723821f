package bench

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
)

// said is how many characters an argument has, and a result: a turn makes about 1 KiB of history.
const said = 400

// text is a text that nothing compresses well, the same for the same seed: what is measured of bytes is the most that such runs take.
func text(seed string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed)) // it never fails
	source := rand.New(rand.NewPCG(h.Sum64(), 0))
	raw := make([]byte, said*3/4)
	for i := range raw {
		raw[i] = byte(source.Uint32())
	}
	return base64.RawStdEncoding.EncodeToString(raw)
}

// model asks for as many calls as the first message says: "turns width".
type model struct {
	latency time.Duration
	steps   *steps
}

// Generate implements sdk.Provider.
func (m model) Generate(ctx context.Context, req sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	m.steps.next(req.Messages)
	if m.latency > 0 {
		if err := retry.Sleep(ctx, m.latency); err != nil {
			return sdk.ModelReply{}, err
		}
	}
	var turns, width int
	if _, err := fmt.Sscanf(req.Messages[0].PlainText(), "%d %d", &turns, &width); err != nil {
		return sdk.ModelReply{}, err
	}
	n := req.Interactions.Current
	if n >= turns {
		return sdk.ModelReply{Text: "done"}, nil
	}
	reply := sdk.ModelReply{}
	for i := range width {
		args := fmt.Sprintf(`{"a":%d,"b":1,"filler":%q}`, n%10, text(fmt.Sprint(req.Run, n, i)))
		reply.Calls = append(reply.Calls, sdk.ToolRequest{Name: ToolName, Arguments: args})
	}
	return reply, nil
}

// mostSteps bounds what is remembered of a long measurement.
const mostSteps = 1 << 20

// steps measures how long it takes from the answer of the last call of a step to the next step: from before the service publishes the
// answer, whose data carries that time, until the model is asked.
type steps struct {
	mu   sync.Mutex
	took []time.Duration
}

// began and ended enclose the time in an answer.
const began, ended = `"at":"`, `"`

// answer is the data of an answer. The time is a text: so many digits do not survive as a number.
func (s *steps) answer(call string) json.RawMessage {
	return json.RawMessage(`{` + began + strconv.FormatInt(time.Now().UnixNano(), 10) + ended + `,"filler":"` + text(call) + `","sum":1}`)
}

// next takes note of a step whose model is shown messages, of which the last ones may be answers.
func (s *steps) next(messages []sdk.Message) {
	now, last := time.Now().UnixNano(), int64(0)
	for i := len(messages) - 1; i >= 0; i-- {
		found := false
		for _, c := range messages[i].Content {
			if c.Kind != sdk.ContentToolResult {
				continue
			}
			_, rest, _ := strings.Cut(c.Text, began)
			digits, _, _ := strings.Cut(rest, ended)
			if at, err := strconv.ParseInt(digits, 10, 64); err == nil {
				last, found = max(last, at), true
			}
		}
		if !found {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last > 0 && len(s.took) < mostSteps {
		s.took = append(s.took, time.Duration(now-last))
	}
}

// reset forgets what was measured, and returns it.
func (s *steps) reset() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := s.took
	s.took = nil
	return took
}

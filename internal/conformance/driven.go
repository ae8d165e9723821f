package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"sync"
	"time"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// What a client's program may be asked to do.
const (
	doStart  = "start"
	doWait   = "wait"
	doFollow = "follow"
	doStatus = "status"
	doList   = "list"
	doAnswer = "answer"
	doDecide = "decide"
	doSend   = "send"
	doCancel = "cancel"
)

// request is a line that a client's program reads: what it is to do.
type request struct {
	Do    string `json:"do"`
	Agent string `json:"agent,omitempty"`
	// Of start.
	Data          json.RawMessage `json:"data,omitempty"`
	Key           string          `json:"key,omitempty"`
	Name          string          `json:"name,omitempty"`
	Require       []string        `json:"require,omitempty"`
	Tokens        int64           `json:"tokens,omitempty"`
	AccessControl string          `json:"accesscontrol,omitempty"`
	TraceParent   string          `json:"traceparent,omitempty"`
	// Run is whom everything but start and list is about.
	Run *runName `json:"run,omitempty"`
	// After is of follow, Status of list, Reason of cancel.
	After  *wire.Mark `json:"after,omitempty"`
	Status string     `json:"status,omitempty"`
	Reason string     `json:"reason,omitempty"`
	// Text is of send and answer; Call and End are of answer too, and Decision and ArgsHash of decide.
	Text     string `json:"text,omitempty"`
	Call     string `json:"call,omitempty"`
	End      bool   `json:"end,omitempty"`
	Decision string `json:"decision,omitempty"`
	ArgsHash string `json:"args_sha256,omitempty"`
}

// runName is a run as programs tell it.
type runName struct {
	Agent string `json:"agent"`
	Name  string `json:"name"`
	Init  string `json:"init"`
}

func (r runName) key() wire.RunKey { return wire.NewRunKey(r.Name) }

// answer is a line that a client's program prints.
type answer struct {
	Run    *runName `json:"run"`
	Status *struct {
		Run    string      `json:"run"`
		Status wire.Status `json:"status"`
	} `json:"status"`
	Runs   []string `json:"runs"`
	Result *struct {
		Type   string          `json:"type"`
		Data   json.RawMessage `json:"data"`
		Reason string          `json:"reason"`
	} `json:"result"`
	Live *told `json:"live"`
	// Done is the end of what follow tells, and of what has no other answer.
	Done        bool     `json:"done"`
	Error       *failure `json:"error"`
	Unsupported bool     `json:"unsupported"`
}

// failure is an error as programs tell it.
type failure struct {
	Code    string      `json:"code"`
	Message string      `json:"message"`
	Faults  []sdk.Fault `json:"faults"`
}

// told is a live event as programs tell it.
type told struct {
	Type      string `json:"type"`
	Revision  uint64 `json:"rev"`
	Index     int    `json:"i"`
	Ephemeral bool   `json:"ephemeral"`
}

// driven is a client's program, which reads a request a line and prints its answers.
type driven struct {
	*program
	input io.Writer
	lines *lines
	// read is how many lines were looked at.
	read int
}

// lines keeps what is written, by lines.
type lines struct {
	*trace
	mu   sync.Mutex
	rest []byte
}

func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, data...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		l.add("", nil, bytes.Clone(line))
		l.rest = rest
	}
}

// drive starts a client's program.
func drive(command, environ []string, output io.Writer) (*driven, error) {
	d := &driven{lines: &lines{trace: newTrace()}}
	var err error
	d.program, err = launch(command, environ, func(cmd *exec.Cmd) error {
		cmd.Stdout, cmd.Stderr = d.lines, output
		var err error
		d.input, err = cmd.StdinPipe()
		return err
	})
	return d, err
}

// ask has the program do something, and returns its first answer.
func (s *clientSession) ask(ctx context.Context, r request) (answer, error) {
	if err := s.tell(r); err != nil {
		return answer{}, err
	}
	return s.next(ctx, r.Do)
}

// tell has the program do something.
func (s *clientSession) tell(r request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := s.program.input.Write(append(line, '\n')); err != nil {
		select { // it has closed its input, as a rule because it ends: that is what there is to say of it
		case <-s.program.ended:
		case <-time.After(endsWithin):
		}
		return failed("it reads no request: %s", err)
	}
	return nil
}

// endsWithin is how long a program that reads no requests has to end.
const endsWithin = 5 * time.Second

// next is the program's next answer.
func (s *clientSession) next(ctx context.Context, what string) (answer, error) {
	return s.nextWithin(ctx, what, s.Patience)
}

// errSilent is that the program has not answered in time.
var errSilent = errors.New("the program does not answer")

func (s *clientSession) nextWithin(ctx context.Context, what string, patience time.Duration) (answer, error) {
	a, err := s.program.next(ctx, patience)
	if errors.Is(err, errSilent) {
		return a, failed("it does not answer %q within %s", what, patience)
	}
	return a, err
}

func (d *driven) next(ctx context.Context, patience time.Duration) (answer, error) {
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		over := d.over()
		messages, changed := d.lines.all()
		if d.read < len(messages) {
			line := messages[d.read].data
			d.read++
			return parsed(line)
		}
		if over {
			return answer{}, failed("it prints no answer")
		}
		select {
		case <-changed:
		case <-d.ended:
		case <-waiting.Done():
			return answer{}, cmp.Or(ctx.Err(), errSilent)
		}
	}
}

func parsed(line []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return a, failed("it prints %s: want a line of JSON (%s)", quoted(line), err)
	}
	if a.Unsupported {
		return a, skipped("the program does not do that")
	}
	return a, nil
}

// well is an answer that is not an error.
func well(a answer, err error) (answer, error) {
	if err == nil && a.Error != nil {
		err = failed("it reports the error %s: %s", a.Error.Code, a.Error.Message)
	}
	return a, err
}

package desk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentd/internal/broker"
	"agentd/internal/clip"
	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// summarySize is how much of arguments and texts the inbox keeps, in bytes; the rest is read when it is shown.
	summarySize = 240
	// maxSent bounds Item.Sent.
	maxSent = 16
)

// asked is the union of the data of the calls that the inbox knows.
type asked struct {
	Agent  string             `json:"agent"`
	Tool   string             `json:"tool"`
	Mode   sdk.PermissionMode `json:"mode"`
	Risk   string             `json:"risk"`
	Stage  int                `json:"stage"`
	Quorum int                `json:"quorum"`
	Remind int64              `json:"remind_ms"`
	Args   json.RawMessage    `json:"args"`
	Calls  []struct {
		Tool string          `json:"tool"`
		Risk string          `json:"risk"`
		Args json.RawMessage `json:"args"`
	} `json:"calls"`
	Question string `json:"question"`
	Message  string `json:"message"`
}

// planned are the texts of the steps of a plan, in one line.
func planned(args json.RawMessage) string {
	var plan struct {
		Steps []struct {
			Step int    `json:"step"`
			Text string `json:"text"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(args, &plan); err != nil {
		return string(args)
	}
	var texts []string
	for _, s := range plan.Steps {
		texts = append(texts, fmt.Sprintf("%d. %s", s.Step, s.Text))
	}
	return strings.Join(texts, "; ")
}

// newItem reads a call. One that cannot be read is nobody's to answer.
func newItem(d broker.Delivery) (*requests.Item, error) {
	event, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		return nil, fmt.Errorf("read call on %s: %w", d.Subject(), err)
	}
	kind := requests.KindOf(event.Type)
	i := &requests.Item{
		ID: event.ID, Kind: kind, Domain: event.Domain, Type: event.Type, Agent: event.Agent, Run: event.Subject,
		Asked: d.Received(), Expires: expiry(event), Subject: d.Subject(), Sequence: d.Sequence(), Hash: requests.HashOf(event.ID),
	}
	var a asked
	if err := json.Unmarshal(event.Data, &a); err != nil && kind != requests.KindTask {
		return nil, fmt.Errorf("read data of call %s: %w", event.ID, err)
	}
	switch kind {
	case requests.KindPermission:
		i.Tool, i.Mode, i.Risk, i.Stage, i.Quorum, i.Summary = a.Tool, a.Mode, a.Risk, a.Stage, a.Quorum, string(a.Args)
		i.RemindMillis, i.Calls = max(a.Remind, 0), len(a.Calls)
		if i.Type == sdk.TypePlanReview {
			i.Summary = planned(a.Args)
		}
		for n, c := range a.Calls {
			if n > 0 {
				i.Tool, i.Summary = i.Tool+", ", i.Summary+", "
			}
			i.Tool, i.Summary, i.Risk = i.Tool+c.Tool, i.Summary+string(c.Args), cmp.Or(i.Risk, c.Risk)
		}
		i.Tool = shorten(i.Tool)
	case requests.KindQuestion:
		i.Summary = a.Question
	case requests.KindTurn:
		i.Summary = a.Message
	case requests.KindTask:
		i.Summary = string(event.Data)
	}
	i.Summary = shorten(i.Summary)
	return i, nil
}

// shorten keeps the beginning of a text, as a copy that does not hold the rest in memory.
func shorten(text string) string {
	return strings.Clone(clip.Text(text, summarySize))
}

// expiry is when the event's call is due; 0 is unknown.
func expiry(event wire.Event) int64 {
	text, _ := event.Extensions[wire.ExpiryTime].(string)
	due, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return due.UnixMilli()
}

func newDetail(i requests.Item, d broker.Delivery) (requests.Detail, error) {
	event, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		return requests.Detail{}, fmt.Errorf("read call %s: %w", i.ID, err)
	}
	detail := requests.Detail{Item: i, Event: event}
	if i.Kind == requests.KindPermission {
		detail.Request, err = readRequest(event)
		return detail, err
	}
	if i.Kind == requests.KindTask {
		return detail, nil
	}
	var text struct {
		Question    string   `json:"question"`
		Message     string   `json:"message"`
		Suggestions []string `json:"suggestions"`
	}
	if err := json.Unmarshal(event.Data, &text); err != nil {
		return requests.Detail{}, fmt.Errorf("read call %s: %w", i.ID, err)
	}
	detail.Text, detail.Suggestions = text.Question+text.Message, text.Suggestions // it has one of them
	return detail, nil
}

// readRequest reads a permission request. What an approver is shown must be what the hash is of.
func readRequest(event wire.Event) (*sdk.PermissionRequest, error) {
	var r sdk.PermissionRequest
	if err := json.Unmarshal(event.Data, &r); err != nil {
		return nil, fmt.Errorf("read permission request %s: %w", event.ID, err)
	}
	args, hashes := []*json.RawMessage{&r.Args}, []string{r.ArgsHash}
	if len(r.Calls) > 0 {
		args, hashes = nil, nil
	}
	for i := range r.Calls {
		args, hashes = append(args, &r.Calls[i].Args), append(hashes, r.Calls[i].ArgsHash)
	}
	shown := len(r.Calls) == 0 || sdk.CallsHash(hashes) == r.ArgsHash
	for i, hash := range hashes {
		canonical, err := wire.Canonicalize(*args[i])
		if err != nil {
			return nil, fmt.Errorf("read the arguments of permission request %s: %w", event.ID, err)
		}
		*args[i] = canonical
		shown = shown && sdk.ArgsHash(canonical) == hash
	}
	if !shown {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent,
			"permission request %s shows arguments that its hash is not of; nobody should decide on it", event.ID)
	}
	return &r, nil
}

// replySubject is where answers of a principal go; who may be empty.
func replySubject(conn *broker.Conn, subject, who string) (string, error) {
	reply, ok := conn.ReplySubject(subject)
	if !ok {
		return "", fmt.Errorf("%s is not a call", subject)
	}
	if who != "" {
		reply += "." + who
	}
	return reply, nil
}

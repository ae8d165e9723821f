// Package ask lets programs ask whoever has the index of runs, over the broker.
package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"agentd/internal/broker"
	"agentd/internal/index"
	"agentd/sdk"
)

const (
	// Timeout bounds the work for one question.
	timeout = 10 * time.Second
	// answerSize bounds the documents of one answer, in bytes, so that it fits in a message. One is always told.
	answerSize = 512 << 10
)

// question is what is asked.
type question struct {
	Filter index.Filter `json:"filter"`
	Sort   index.SortBy `json:"sort,omitempty"`
	Oldest bool         `json:"oldest,omitempty"`
	After  string       `json:"after,omitempty"`
	Limit  int          `json:"limit,omitempty"`
	Now    int64        `json:"-"`
}

// Service answers questions to an index.
func Service(conn *broker.Conn, x index.Index) broker.Service {
	return broker.Service{
		Name: conn.Subjects().Root() + "-index", Version: "1.0.0", Description: "the index of runs",
		Endpoints: []broker.Endpoint{{Subject: conn.Subjects().IndexQuery(), Name: "query", Answer: func(_ string, request []byte) (broker.Answer, error) {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			page, err := answer(ctx, x, request, conn.Now())
			if err != nil {
				return nil, err
			}
			return broker.JSON(page)
		}}},
	}
}

func answer(ctx context.Context, x index.Index, request []byte, now int64) (index.Page, error) {
	var asked question
	if err := json.Unmarshal(request, &asked); err != nil {
		return index.Page{}, sdk.Errorf(sdk.CodeInvalidEvent, `want {"filter": "status:waiting", "limit": 50}`).WithCause(err)
	}
	q := index.Query(asked)
	if _, err := q.Position(now); err != nil {
		return index.Page{}, err
	}
	page, err := x.Query(ctx, q)
	if err != nil {
		return index.Page{}, err
	}
	size := 0
	for i := range page.Documents {
		data, err := page.Documents[i].Encode()
		if err != nil {
			return index.Page{}, err
		}
		if size += len(data); size > answerSize && i > 0 {
			page.Documents, page.Next = page.Documents[:i], q.Following(&page.Documents[i-1])
			break
		}
	}
	return page, nil
}

// Query asks whoever has the index for a page. known is false where nobody has it.
func Query(ctx context.Context, conn *broker.Conn, q index.Query) (page index.Page, known bool, err error) {
	request, err := json.Marshal(question(q))
	if err != nil {
		return page, false, fmt.Errorf("encode a question to the index of runs: %w", err)
	}
	data, known, err := conn.AskIndex(ctx, request)
	if err != nil || !known {
		return page, known, err
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return page, true, sdk.Errorf(sdk.CodeUnavailable, "the index of runs answered what cannot be read").WithCause(err)
	}
	return page, true, nil
}

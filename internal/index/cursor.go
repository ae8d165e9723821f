package index

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"agentd/sdk"
)

// Position is the last run of a page, with its value in the query's order: the next page begins after it.
type Position struct {
	Value int64
	Run   string
}

// Order is what the query is sorted by.
func (q *Query) Order() SortBy { return cmp.Or(q.Sort, SortChanged) }

// Position reads After; nil is the beginning. It checks the query's order, too, and sets its Now: to that of the first page, or to now.
func (q *Query) Position(now int64) (*Position, error) {
	switch q.Sort {
	case "", SortChanged, SortStarted, SortTokens, SortDuration:
	default:
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "runs can be sorted by %s, %s, %s or %s, not by %q", SortChanged, SortStarted, SortTokens, SortDuration, q.Sort)
	}
	if q.Now == 0 {
		q.Now = now
	}
	if q.After == "" {
		return nil, nil
	}
	var c Position
	data, err := base64.RawURLEncoding.DecodeString(q.After)
	of, rest, _ := strings.Cut(string(data), " ")
	value, run, _ := strings.Cut(rest, " ")
	value, measured, _ := strings.Cut(value, "@")
	if err == nil && of == q.digest() {
		c.Run = run
		c.Value, err = strconv.ParseInt(value, 10, 64)
		if err == nil && q.Sort == SortDuration {
			q.Now, err = strconv.ParseInt(measured, 10, 64)
		}
	}
	if err != nil || c.Run == "" {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "the page to go on after belongs to another query; begin with the first page")
	}
	return &c, nil
}

// Following is the After of the page that follows the one that ends with d. Position was called before.
func (q *Query) Following(d *Document) string {
	value := strconv.FormatInt(q.of(d), 10)
	if q.Sort == SortDuration {
		value += "@" + strconv.FormatInt(q.Now, 10)
	}
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %s %s", q.digest(), value, d.Run))
}

func (q *Query) digest() string {
	text := string(q.Order()) + " "
	if q.Oldest {
		text += "oldest "
	}
	sum := sha256.Sum256([]byte(text + q.Filter.String()))
	return hex.EncodeToString(sum[:6])
}

// Check says whether runs can be counted by it.
func (b CountBy) Check() error {
	switch b {
	case CountStatus, CountReason, CountAgent, CountWaits, CountSpec:
		return nil
	}
	return sdk.Errorf(sdk.CodeInvalidEvent, "runs can be counted by %s, %s, %s, %s or %s, not by %q", CountStatus, CountReason, CountAgent, CountWaits, CountSpec, b)
}

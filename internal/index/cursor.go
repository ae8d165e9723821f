package index

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"agentd/sdk"
)

// cursor is the last run of a page: the next page begins after it.
type cursor struct {
	value int64
	run   string
}

// cursor reads After; nil is the beginning. It checks the query's order, too.
func (q *Query) cursor() (*cursor, error) {
	switch q.Sort {
	case "", SortChanged, SortStarted, SortTokens:
	default:
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "runs can be sorted by %s, %s or %s, not by %q", SortChanged, SortStarted, SortTokens, q.Sort)
	}
	if q.After == "" {
		return nil, nil
	}
	var c cursor
	data, err := base64.RawURLEncoding.DecodeString(q.After)
	of, rest, _ := strings.Cut(string(data), " ")
	value, run, _ := strings.Cut(rest, " ")
	if err == nil && of == q.digest() {
		c.run = run
		c.value, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil || c.run == "" {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "the page to go on after belongs to another query; begin with the first page")
	}
	return &c, nil
}

// next is the After of the page that follows the one that ends with d.
func (q *Query) next(d *Document) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %d %s", q.digest(), q.Sort.of(d), d.Run))
}

func (q *Query) digest() string {
	order := q.Sort
	if order == "" {
		order = SortChanged
	}
	text := string(order) + " "
	if q.Oldest {
		text += "oldest "
	}
	sum := sha256.Sum256([]byte(text + q.Filter.String()))
	return hex.EncodeToString(sum[:6])
}

func (b CountBy) check() error {
	switch b {
	case CountStatus, CountReason, CountAgent, CountWaits:
		return nil
	}
	return sdk.Errorf(sdk.CodeInvalidEvent, "runs can be counted by %s, %s, %s or %s, not by %q", CountStatus, CountReason, CountAgent, CountWaits, b)
}

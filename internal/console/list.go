package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"agentd/internal/index"
	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// preset is a filter with a name.
type preset struct {
	Name, Filter string
	Sort         index.SortBy
}

var presets = []preset{
	{"All", "", ""},
	{"In flight", inFlight, ""},
	{"Waits for a person", "waits:permission waits:question waits:turn", ""},
	{"Failed in 24 h", failed + " changed>-24h", ""},
	{"Stuck for 1 h", "status:running changed<-1h", ""},
	{"Most tokens", "", index.SortTokens},
	{"Took longest", "", index.SortDuration},
}

// inFlight selects the runs that have not ended.
const inFlight = "status:running status:waiting"

// failed selects the runs that ended otherwise than somebody wanted.
var failed = index.Failed().String()

type overviewPage struct {
	Counts  []index.Count
	Behind  index.Freshness
	Asked   int
	Letters int
	More    bool
	// Oldest are the runs that have waited for a person for the longest, and Failed those that failed last.
	Oldest, Failed []row
	// Problems say what could not be read, and Lacking which runs are not here.
	Problems []string
	Lacking  string
}

// lettersCounted is the most dead letters that the overview counts.
const lettersCounted = 100

func (c *console) overview(r *request) (*view, error) {
	var p overviewPage
	counts, err := c.Index.Counts(r.Context(), index.Filter{}, index.CountStatus)
	p.Counts, p.Behind = counts.Groups, counts.Freshness
	slices.SortFunc(p.Counts, func(a, b index.Count) int { return cmp.Compare(a.Value, b.Value) })
	p.problem("runs cannot be counted", err)
	p.Lacking = c.Lacking()
	p.Asked = len(c.Desk.List()) + c.Desk.Omitted()
	letters, more, err := c.Source.Letters(r.Context(), LetterFilter{Since: c.now().Add(-day).UnixMilli(), Limit: lettersCounted})
	p.Letters, p.More = len(letters), more
	p.problem("dead letters cannot be read", err)
	p.Oldest, err = c.rows(r.Context(), index.Query{Filter: mustFilter("waits:permission waits:question waits:turn"), Oldest: true, Limit: few})
	p.problem("runs that wait cannot be listed", err)
	p.Failed, err = c.rows(r.Context(), index.Query{Filter: mustFilter(failed + " changed>-24h"), Limit: few})
	p.problem("runs that failed cannot be listed", err)
	return &view{Title: "Overview", Template: placeOverview, Place: placeOverview, Data: &p}, nil
}

func (p *overviewPage) problem(what string, err error) {
	if err != nil {
		p.Problems = append(p.Problems, what+": "+sdk.AsError(err).Message)
	}
}

// few is how many runs the overview shows of a kind.
const few = 5

// mustFilter reads a filter that is part of the program.
func mustFilter(text string) index.Filter {
	f, err := index.ParseFilter(text)
	if err != nil {
		panic(err) // the filter is constant
	}
	return f
}

func (c *console) rows(ctx context.Context, q index.Query) ([]row, error) {
	page, err := c.Index.Query(ctx, q)
	return rowsOf(page.Documents, c.now().UnixMilli()), err
}

type runsPage struct {
	Query string
	// Caption says in which order the runs are.
	Caption string
	Sort    index.SortBy
	Presets []chosen
	Rows    []row
	// Next is the address of the page that follows, and First that of the first; empty is that this is it.
	Next, First string
	// After is what Next says of the place where it begins.
	After   string
	Behind  index.Freshness
	Lacking string
	// Live is the address of what changes.
	Live string
	// Faults say what is wrong with the filter.
	Faults []string
}

var captions = map[index.SortBy]string{
	index.SortChanged: "Runs, those that changed last first", index.SortStarted: "Runs, those that began last first",
	index.SortTokens: "Runs, those that used most tokens first", index.SortDuration: "Runs, those that took longest first",
}

// chosen is a link that may be the one that was followed.
type chosen struct {
	Name, Address string
	Here          bool
}

func (c *console) runs(r *request) (*view, error) {
	values := r.URL.Query()
	p := &runsPage{Query: values.Get("q"), Sort: index.SortBy(values.Get("sort"))}
	p.Caption = cmp.Or(captions[p.Sort], captions[index.SortChanged])
	v := &view{Title: "Runs", Template: placeRuns, Place: placeRuns, Data: p}
	for _, one := range presets {
		p.Presets = append(p.Presets, chosen{one.Name, listAddress(one.Filter, one.Sort, ""), one.Filter == p.Query && one.Sort == p.Sort})
	}
	filter, err := index.ParseFilter(p.Query)
	if err != nil && forPrograms(r.Request) {
		return nil, err
	}
	if err != nil {
		e := sdk.AsError(err)
		p.Faults = append(p.Faults, e.Message)
		for _, f := range e.Faults {
			p.Faults = append(p.Faults, f.String())
		}
		v.Status = http.StatusUnprocessableEntity
		return v, nil
	}
	limit, _ := strconv.Atoi(values.Get("limit"))
	page, err := c.Index.Query(r.Context(), index.Query{Filter: filter, Sort: p.Sort, After: values.Get("after"), Limit: min(max(limit, 0), index.DefaultLimit)})
	if err != nil {
		return nil, err
	}
	p.Rows, p.Behind, p.Lacking = rowsOf(page.Documents, c.now().UnixMilli()), page.Freshness, c.Lacking()
	if p.After = page.Next; page.Next != "" {
		p.Next = listAddress(p.Query, p.Sort, page.Next)
	}
	if values.Get("after") != "" {
		p.First = listAddress(p.Query, p.Sort, "")
	}
	shown := url.Values{"q": {p.Query}, "sort": {string(p.Sort)}, "since": {strconv.FormatInt(c.now().UnixMilli(), 10)}}
	for i := range p.Rows {
		shown.Add("run", p.Rows[i].Run)
	}
	p.Live = "/live/runs?" + shown.Encode()
	return v, nil
}

func listAddress(query string, sort index.SortBy, after string) string {
	values := url.Values{}
	for name, value := range map[string]string{"q": query, "sort": string(sort), "after": after} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return strings.TrimSuffix("/runs?"+values.Encode(), "?")
}

// row is a run in a list.
type row struct {
	index.Document
	// Key is a part of an HTML id.
	Key      string `json:"-"`
	Duration int64  `json:"duration,omitempty"`
	// For is what the run waits for, in words. A call that is held is not: its permission is.
	For []string `json:"waits_for,omitempty"`
}

func rowsOf(documents []index.Document, now int64) []row {
	rows := make([]row, len(documents))
	for i, d := range documents {
		rows[i] = rowOf(d, now)
	}
	return rows
}

func rowOf(d index.Document, now int64) row {
	r := row{Document: d, Key: wire.NewRunKey(d.Run).String(), Duration: d.Duration(now).Milliseconds()}
	for _, w := range d.Waits {
		held := index.Wait{Kind: string(requests.KindPermission), Tool: w.Tool}
		if w.Kind == held.Kind || !slices.ContainsFunc(d.Waits, func(o index.Wait) bool { return o.Kind == held.Kind && o.Tool == held.Tool }) {
			r.For = append(r.For, waitText(w))
		}
	}
	return r
}

// waitText is what a run waits for, in words.
func waitText(w index.Wait) string {
	switch w.Kind {
	case string(requests.KindPermission):
		return "permission for " + w.Tool
	case string(requests.KindQuestion):
		return "an answer"
	case string(requests.KindTurn):
		return "the person"
	case toldPaused:
		return toldPaused
	}
	return cmp.Or(w.Tool, w.Kind)
}

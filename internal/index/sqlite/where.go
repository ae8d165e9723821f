package sqlite

import (
	"slices"
	"strings"

	"agentd/internal/index"
	"agentd/sdk/wire"
)

// clause is a part of a statement with its arguments.
type clause struct {
	text      strings.Builder
	arguments []any
}

func (c *clause) add(text string, arguments ...any) {
	c.text.WriteString(text)
	c.arguments = append(c.arguments, arguments...)
}

// listing is which documents of those that a filter selects are read: limit of them after a position; nil is the beginning. now is in Unix
// milliseconds.
type listing struct {
	index.Query
	at    *index.Position
	limit int
	now   int64
}

// direction is that of the listing's order, in SQL.
func (l listing) direction() string {
	if l.Oldest {
		return " ASC"
	}
	return " DESC"
}

// list adds the conditions of a filter, and the order of a listing by a column.
func (c *clause) list(column string, l listing, groups [][]index.Term) {
	if l.at != nil {
		beyond := " < "
		if l.Oldest {
			beyond = " > "
		}
		c.add(" AND "+column+beyond[:2]+"= ? AND ("+column+beyond+"? OR r.run > ?)", l.at.Value, l.at.Value, l.at.Run)
	}
	c.where(groups, l.now)
	c.add(" ORDER BY "+column+l.direction()+", r.run LIMIT ?", l.limit)
}

// spans is the statement of a listing by duration: of the runs that go on and of those that are done, each in the order of the index.
func (c *clause) spans(l listing, groups [][]index.Term) {
	c.add("SELECT document FROM (")
	for ended, until := range []int64{l.Now, 0} {
		if ended > 0 {
			c.add(" UNION ALL ")
		}
		part := l
		if l.at != nil {
			part.at = &index.Position{Value: l.at.Value - until, Run: l.at.Run}
		}
		c.add("SELECT * FROM (SELECT r.document, r.span + ? AS value, r.run FROM runs r WHERE r.ended = ?", until, ended)
		c.list("r.span", part, groups)
		c.add(")")
	}
	c.add(") ORDER BY value"+l.direction()+", run LIMIT ?", l.limit)
}

// areMarks reports whether the terms are about something that a run can have several of, with a value each.
func areMarks(group []index.Term) bool {
	return !slices.ContainsFunc(group, func(t index.Term) bool { return !marked(&t) || t.Not || t.Prefix })
}

// where adds the conditions of a filter, each with AND before it. now is in Unix milliseconds.
func (c *clause) where(groups [][]index.Term, now int64) {
	for _, group := range groups {
		c.add(" AND (")
		for i := range group {
			t := &group[i]
			if i > 0 {
				c.add(" OR ")
			}
			if t.Not {
				c.add("NOT ")
			}
			c.add("(")
			c.term(t, now)
			c.add(")")
		}
		c.add(")")
	}
}

func (c *clause) term(t *index.Term, now int64) {
	switch {
	case t.Key == index.KeyText:
		c.add("r.id IN (SELECT rowid FROM words WHERE words MATCH ?)", phrase(t))
	case t.With != index.Is:
		c.amount(t, now)
	case marked(t):
		c.add("r.id IN (SELECT m.id FROM marks m WHERE m.key = ? AND ", t.Key)
		c.equal("m.value", t)
		c.add(")")
	default:
		c.equal("r."+t.Key, t) // one of the keys that ParseFilter knows, which are columns
	}
}

// marked reports whether the term is about something that a run can have several of.
func marked(t *index.Term) bool {
	return t.Key == index.KeyWaits || t.Key == index.KeyTool || strings.HasPrefix(t.Key, index.TagPrefix)
}

func (c *clause) equal(column string, t *index.Term) {
	switch {
	case !t.Prefix:
		c.add(column+" = ?", t.Value)
	case t.Value == "":
		c.add(column + " > ''")
	default:
		c.add(column+" >= ? AND "+column+" < ? || char(1114111)", t.Value, t.Value)
	}
}

func (c *clause) amount(t *index.Term, now int64) {
	column := "r." + t.Key
	switch t.Key {
	case index.KeyDuration:
		c.add("r.started > 0 AND max(CASE r.status WHEN ? THEN r.changed ELSE ? END - r.started, 0) "+string(t.With)+" ?", string(wire.StatusDone), now, t.Amount(now))
		return
	case index.KeyTurns, index.KeyTokens:
	default:
		c.add(column + " > 0 AND ")
	}
	c.add(column+" "+string(t.With)+" ?", t.Amount(now))
}

// phrase is what the words of a term are in the language of full-text queries.
func phrase(t *index.Term) string {
	text := `"` + strings.Join(index.Words(t.Value), " ") + `"`
	if t.Prefix {
		text += " *"
	}
	return text
}

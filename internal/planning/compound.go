package planning

import (
	"regexp"
	"slices"
	"strings"

	"agentd/sdk"
)

// connective is what joins several tasks in one request.
var connective = regexp.MustCompile(`(?i)\b(and then|then|after that|afterwards|and also|also|as well as|followed by|finally|in addition|plus|once that is done)\b|;\s+\w`)

// pairs are verbs of different work: a request that has one, and one of those beside it, is for two steps.
var pairs = []struct{ verbs, beside []string }{
	{[]string{"find", "search", "read"}, []string{"summar"}},
	{[]string{"find"}, []string{"send", "book"}},
	{[]string{"search"}, []string{"save"}},
	{[]string{"read"}, []string{"write"}},
	{[]string{"list"}, []string{"delete"}},
	{[]string{"check"}, []string{"book", "notify"}},
	{[]string{"look up"}, []string{"cancel"}},
	{[]string{"fetch"}, []string{"store"}},
	{[]string{"create"}, []string{"send"}},
}

// Compound reports whether a request seems to be for several steps.
func Compound(request string) bool {
	if connective.MatchString(request) {
		return true
	}
	lower := strings.ToLower(request)
	in := func(verb string) bool { return strings.Contains(lower, verb) }
	for _, p := range pairs {
		if slices.ContainsFunc(p.verbs, in) && slices.ContainsFunc(p.beside, in) {
			return true
		}
	}
	return false
}

// Template is the plan for a request that has a word of each of its groups; of several, the one with the most groups. Nil is none.
func Template(templates []sdk.PlanTemplate, request string) *sdk.PlanTemplate {
	words := " " + strings.Join(strings.FieldsFunc(strings.ToLower(request), func(r rune) bool { return strings.ContainsRune(" \t\r\n.,;:!?\"'()", r) }), " ") + " "
	var best *sdk.PlanTemplate
	for i := range templates {
		t := &templates[i]
		if hasAll(words, t.Keywords) && (best == nil || len(t.Keywords) > len(best.Keywords)) {
			best = t
		}
	}
	return best
}

func hasAll(words string, groups [][]string) bool {
	for _, group := range groups {
		found := false
		for _, word := range group {
			found = found || strings.Contains(words, " "+strings.ToLower(word)+" ")
		}
		if !found {
			return false
		}
	}
	return len(groups) > 0
}

package toolcall

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"agentd/internal/spelling"
)

// Tool is what of a tool says which names may mean it.
type Tool struct {
	Name string
	// Server is the toolset that it comes from, empty for the agent's own; Type is the type of its contract.
	Server, Type string
	// ReadOnly says that it changes nothing. Any other tool acts.
	ReadOnly bool
}

// How says how a name was understood.
type How string

// The ways, in the order in which they are tried. Nothing but the exact name comes before them.
const (
	ByAlias    How = "alias"      // the agent says that the name stands for the tool
	Unprefixed How = "unprefixed" // the tool's name without its server, or its contract's namespace
	Spelled    How = "spelling"   // other capitals, or other signs between the words
	Similar    How = "similar"    // letters that are wrong, missing, or too many
)

// What a similar name must be like.
const (
	// mostTypos, fewestLetters and actingMargin are of tools that act: one slip of the pen in a name of some length, and every other
	// tool is at least so many slips further away.
	mostTypos, fewestLetters, actingMargin = 1, 5, 2
	// leastReading is the similarity, in hundredths, of tools that only read. The nearest must be nearer than any other tool.
	leastReading = 70
	// leastSuggested is the similarity of names that are suggested, and mostSuggested how many are.
	leastSuggested, mostSuggested = 30, 3
	// longestName is the length of the longest name that is compared with others, in bytes; no tool's is longer.
	longestName = 64
)

// Names finds tools by names that none of them has.
type Names struct {
	tools   []Tool
	aliases map[string]string
	similar bool
	// whole and own are the letters and digits of the tools' names, and of those without their servers or namespaces.
	whole, own []string
}

// NewNames is for tools in the order in which models are shown them. aliases are names that stand for tools' names. Without similar,
// no name is taken for one that only looks like it.
func NewNames(tools []Tool, aliases map[string]string, similar bool) *Names {
	n := &Names{tools: tools, aliases: aliases, similar: similar}
	for _, t := range tools {
		n.whole, n.own = append(n.whole, letters(t.Name)), append(n.own, letters(t.own()))
	}
	return n
}

// own is the tool's name without its server, or its contract's namespace; the whole name where it has neither.
func (t *Tool) own() string {
	if t.Server != "" {
		return strings.TrimPrefix(t.Name, plain(t.Server)+"_")
	}
	if i := strings.LastIndexByte(t.Type, '.'); i >= 0 && plain(t.Type) == t.Name {
		return t.Type[i+1:]
	}
	return t.Name
}

// Meaning is what a name means that no tool has.
type Meaning struct {
	// Tool is the name of the tool; empty where it is not certain which is meant.
	Tool string
	How  How
	// Closest are the names of tools that may be meant, the likeliest first.
	Closest []string
}

// Meaning finds the tool that is meant. It never looks for a tool of a server behind the name of another.
func (n *Names) Meaning(name string) Meaning {
	if tool, ok := n.aliases[name]; ok && n.has(tool) {
		return Meaning{Tool: tool, How: ByAlias}
	}
	if len(name) > longestName {
		return Meaning{}
	}
	server := n.named(name)
	if server == "" {
		if tool := n.only(func(i int) bool { return plain(n.tools[i].own()) == plain(name) }); tool != "" {
			return Meaning{Tool: tool, How: Unprefixed}
		}
	}
	written := letters(name)
	if tool := n.only(func(i int) bool { return n.whole[i] == written || n.isType(i, name) }); tool != "" {
		return Meaning{Tool: tool, How: Spelled}
	}
	found := n.compare(written, server)
	if n.similar {
		if tool := n.nearest(written, found); tool != "" {
			return Meaning{Tool: tool, How: Similar}
		}
	}
	return Meaning{Closest: n.suggested(found)}
}

func (n *Names) has(name string) bool {
	return slices.ContainsFunc(n.tools, func(t Tool) bool { return t.Name == name })
}

func (n *Names) isType(i int, name string) bool {
	return n.tools[i].Type != "" && n.tools[i].Type == name
}

// only is the one tool that fits; empty where none does, or several.
func (n *Names) only(fits func(i int) bool) string {
	found := ""
	for i := range n.tools {
		if !fits(i) {
			continue
		}
		if found != "" {
			return ""
		}
		found = n.tools[i].Name
	}
	return found
}

// named is the server that a name begins with; empty is none. Of "files" and "files_eu" it is the longer one.
func (n *Names) named(name string) string {
	server := ""
	for _, t := range n.tools {
		rest, begins := strings.CutPrefix(plain(name), plain(t.Server))
		if begins && len(t.Server) > len(server) && rest != "" && strings.ContainsAny(rest[:1], "_-") {
			server = t.Server
		}
	}
	return server
}

// likeness is how near a tool's name is to one that was written.
type likeness struct {
	tool *Tool
	// typos is the distance, and like the similarity in hundredths.
	typos, like int
	// digits says that both have the same digits: "v1" is not a slip of the pen for "v2".
	digits bool
}

// compare compares a name with all tools that it may mean: those of the server that it names, else all.
func (n *Names) compare(written, server string) []likeness {
	var found []likeness
	for i := range n.tools {
		t := &n.tools[i]
		if server != "" && t.Server != server || written == "" {
			continue
		}
		best := like(t, written, n.whole[i])
		if own := like(t, written, n.own[i]); server == "" && own.typos < best.typos {
			best = own
		}
		found = append(found, best)
	}
	slices.SortStableFunc(found, func(a, b likeness) int { return cmp.Or(cmp.Compare(b.like, a.like), cmp.Compare(a.typos, b.typos)) })
	return found
}

func like(t *Tool, written, name string) likeness {
	typos := spelling.Distance(written, name)
	longest := max(len(written), len(name), 1)
	return likeness{tool: t, typos: typos, like: 100 * (longest - typos) / longest, digits: digits(written) == digits(name)}
}

// nearest is the tool that is so near that it can be taken for the one that is meant; empty is none. One that acts must be a slip of
// the pen away, and no other may be nearly as near.
func (n *Names) nearest(written string, found []likeness) string {
	if len(found) == 0 || !found[0].digits {
		return ""
	}
	best := found[0]
	next := len(written) + longestName // further than any
	for _, other := range found[1:] {
		next = min(next, other.typos)
	}
	switch {
	case best.tool.ReadOnly && best.like >= leastReading && next > best.typos:
		return best.tool.Name
	case best.typos <= mostTypos && len(written) >= fewestLetters && next >= best.typos+actingMargin:
		return best.tool.Name
	}
	return ""
}

func (n *Names) suggested(found []likeness) []string {
	var names []string
	for _, l := range found {
		if l.like > leastSuggested && len(names) < mostSuggested {
			names = append(names, l.tool.Name)
		}
	}
	return names
}

// plain is a name with the signs between its words as the names of tools have them.
func plain(name string) string {
	return strings.NewReplacer(".", "_", "/", "_", ":", "_", " ", "_").Replace(name)
}

// letters are the letters and digits of a name, in lower case: what is left of it when only its style differs.
func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

func digits(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return r
		}
		return -1
	}, name)
}

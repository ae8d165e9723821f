package console

import (
	"cmp"
	"fmt"
	"slices"

	"agentd/sdk"
)

// graph is agents, what they call, and whom they ask, in two columns with lines between them.
type graph struct {
	Nodes  []node
	Edges  []edge
	Height int
	// Rows says the same as a table.
	Rows []calls
	// TooLarge says that it is not drawn.
	TooLarge bool
}

type node struct {
	Name, Kind string
	X, Y       int
}

type edge struct{ X1, Y1, X2, Y2 int }

// calls is what one agent calls.
type calls struct {
	Agent     string   `json:"agent"`
	Services  []string `json:"services,omitempty"`
	People    []string `json:"people,omitempty"`
	Permitted bool     `json:"permissions,omitempty"`
}

// The drawing, in its own units.
const (
	nodeWidth, nodeHeight = 300, 34
	nodeGap               = 12
	rightColumn           = 660
	mostNodes             = 200
)

// graphOf is the graph of agents. One that another calls stands among those that call.
func graphOf(specs []sdk.AgentSpec) graph {
	var g graph
	g.TooLarge = !g.place(specs)
	for i := range specs {
		s := &specs[i]
		c := calls{Agent: s.Name, Permitted: s.Permissions != nil}
		for n := range s.Services {
			c.Services = append(c.Services, toolName(&s.Services[n]))
		}
		c.People = asks(s)
		g.Rows = append(g.Rows, c)
	}
	if g.TooLarge {
		g.Nodes, g.Edges = nil, nil
	}
	return g
}

func toolName(t *sdk.ServiceTool) string { return cmp.Or(t.Contract.Type, t.Contract.URI, t.As) }

// asks are the domains of people that an agent asks.
func asks(s *sdk.AgentSpec) []string {
	if s.Permissions != nil || slices.Contains(s.Builtin, "ask_question") || slices.Contains(s.Builtin, "converse") || s.Text == sdk.TextConverse {
		return []string{sdk.HumanDomain}
	}
	return nil
}

// place puts nodes and edges in their places; false is that there are too many.
func (g *graph) place(specs []sdk.AgentSpec) bool {
	places := map[string]int{}
	columns := [2]int{}
	add := func(name, kind string, column int) int {
		if at, has := places[name]; has {
			return at
		}
		n := node{Name: name, Kind: kind, X: column * rightColumn, Y: columns[column]}
		columns[column] += nodeHeight + nodeGap
		places[name] = len(g.Nodes)
		g.Nodes = append(g.Nodes, n)
		return places[name]
	}
	for i := range specs {
		places[specs[i].Contract.Type] = add(specs[i].Name, "agent", 0)
	}
	for i := range specs {
		s := &specs[i]
		from := places[s.Name]
		var to []int
		for n := range s.Services {
			to = append(to, add(toolName(&s.Services[n]), "service", 1))
		}
		for _, domain := range asks(s) {
			to = append(to, add(domain, "people", 1))
		}
		for _, n := range to {
			a, b := g.Nodes[from], g.Nodes[n]
			e := edge{a.X + nodeWidth, a.Y + nodeHeight/2, b.X, b.Y + nodeHeight/2}
			if b.X == a.X { // an agent that calls another
				e.X2 = b.X + nodeWidth
			}
			g.Edges = append(g.Edges, e)
		}
	}
	g.Height = max(columns[0], columns[1])
	return len(g.Nodes) <= mostNodes
}

// Path is the edge as a curve.
func (e edge) Path() string {
	bend := 120
	if e.X1 == e.X2 {
		return fmt.Sprintf("M%d %d C%d %d %d %d %d %d", e.X1, e.Y1, e.X1+bend, e.Y1, e.X2+bend, e.Y2, e.X2, e.Y2)
	}
	return fmt.Sprintf("M%d %d C%d %d %d %d %d %d", e.X1, e.Y1, e.X1+bend, e.Y1, e.X2-bend, e.Y2, e.X2, e.Y2)
}

// TextX and TextY are where the node's name is.
func (n node) TextX() int { return n.X + 12 }

// TextY is the name's baseline.
func (n node) TextY() int { return n.Y + 22 }

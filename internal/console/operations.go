package console

import (
	"cmp"
	"crypto/rand"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentd/internal/index"
	"agentd/internal/show"
	"agentd/sdk"
)

const day = 24 * time.Hour

type lettersPage struct {
	LetterFilter
	Rows []show.Letter
	More bool
}

// lettersShown is how many dead letters a page has.
const lettersShown = 100

func (c *console) letters(r *request) (*view, error) {
	values := r.URL.Query()
	p := &lettersPage{LetterFilter: LetterFilter{Reason: values.Get("reason"), Run: values.Get("run"), Agent: values.Get("agent"), Limit: lettersShown}}
	var err error
	p.Rows, p.More, err = c.Source.Letters(r.Context(), p.LetterFilter)
	return &view{Title: "Dead letters", Template: placeLetters, Place: placeLetters, Data: p}, err
}

type letterPage struct {
	show.LetterDetail
	Text string
}

func sequence(r *request) (uint64, error) {
	n, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil || n == 0 {
		return 0, notFound("this is not the number of a dead letter")
	}
	return n, nil
}

func (c *console) letter(r *request) (*view, error) {
	n, err := sequence(r)
	if err != nil {
		return nil, err
	}
	d, err := c.Source.Letter(r.Context(), n)
	if err != nil {
		return nil, err
	}
	return &view{Title: "Dead letter " + strconv.FormatUint(n, 10), Template: "letter", Place: placeLetters, Data: &letterPage{d, d.Content(false)}}, nil
}

// settle redrives or drops a dead letter.
func (c *console) settle(r *request) (*view, error) {
	n, err := sequence(r)
	if err != nil {
		return nil, err
	}
	switch r.PathValue("verb") {
	case "redrive":
		if _, err := c.Source.Redrive(r.Context(), n); err != nil {
			return nil, err
		}
		return &view{To: "/dead-letters?told=redriven"}, nil
	case "drop":
		if r.PostFormValue("number") != strconv.FormatUint(n, 10) {
			return nil, sdk.Errorf(sdk.CodeContractViolation, "dropping deletes the message for good; write its number, %d, to confirm that", n)
		}
		if err := c.Source.Drop(r.Context(), n); err != nil {
			return nil, err
		}
		return &view{To: "/dead-letters?told=dropped"}, nil
	}
	return nil, notFound("a dead letter cannot be asked for that")
}

type agentRow struct {
	*sdk.AgentSpec
	State   AgentState
	Problem string
}

type agentsPage struct {
	Agents []agentRow
	Graph  graph
}

func (c *console) agents(r *request) (*view, error) {
	p := &agentsPage{}
	specs := c.Agents()
	for i := range specs {
		p.Agents = append(p.Agents, c.agentRow(r, &specs[i]))
	}
	p.Graph = graphOf(specs)
	return &view{Title: "Agents", Template: placeAgents, Place: placeAgents, Data: p}, nil
}

func (c *console) agentRow(r *request, spec *sdk.AgentSpec) agentRow {
	row := agentRow{AgentSpec: spec}
	var err error
	if row.State, err = c.Source.AgentState(r.Context(), spec.Name); err != nil {
		row.Problem = "how it is served cannot be seen: " + sdk.AsError(err).Message
	}
	return row
}

// spec is the agent of the configuration with that name.
func (c *console) spec(name string) (*sdk.AgentSpec, error) {
	specs := c.Agents()
	i := slices.IndexFunc(specs, func(s sdk.AgentSpec) bool { return s.Name == name })
	if i < 0 {
		return nil, sdk.Errorf(sdk.CodeUnknownAgent, "the configuration of this console does not have that agent; start it with the configuration that has it")
	}
	return &specs[i], nil
}

type agentPage struct {
	agentRow
	Form    form
	Key     string
	Accepts string
	Emits   []emitted
	Runs    string
	// Specs are those that runs under way keep, the most used first, and SpecsProblem says why they cannot be counted.
	Specs        []specInUse
	SpecsProblem string
}

type emitted struct{ Type, Schema string }

func (c *console) agent(r *request) (*view, error) {
	spec, err := c.spec(r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	version := spec.Contract.Versions[spec.Version]
	p := &agentPage{
		agentRow: c.agentRow(r, spec), Form: newForm(version.Accepts, nil), Key: "console-" + rand.Text(),
		Accepts: show.VisibleJSON(version.Accepts), Emits: emittedBy(version), Runs: listAddress("agent:"+spec.Name, "", ""),
	}
	p.specs(r)
	return &view{Title: "Agent " + show.Line(spec.Name, shortLength), Template: "agent", Place: placeAgents, Data: p}, nil
}

// specInUse is a spec that runs keep which have not ended.
type specInUse struct {
	index.Count
	// Runs is the address of the list of them.
	Runs string `json:"-"`
}

// specs counts the runs under way by the spec that they keep: each goes on with the one that it began with.
func (p *agentPage) specs(r *request) {
	under := mustFilter(inFlight).And(index.Filter{Terms: []index.Term{{Key: index.KeyAgent, With: index.Is, Value: p.Name}}})
	counts, err := r.c.Index.Counts(r.Context(), under, index.CountSpec)
	if err != nil {
		p.SpecsProblem = "the specs in use cannot be counted: " + sdk.AsError(err).Message
	}
	for _, one := range counts.Groups {
		of := under.And(index.Filter{Terms: []index.Term{{Key: index.KeySpec, With: index.Is, Value: one.Value}}})
		p.Specs = append(p.Specs, specInUse{one, listAddress(of.String(), "", "")})
	}
}

func emittedBy(v sdk.ContractVersion) []emitted {
	var all []emitted
	for t, schema := range v.Emits {
		all = append(all, emitted{t, show.VisibleJSON(schema)})
	}
	slices.SortFunc(all, func(a, b emitted) int { return cmp.Compare(a.Type, b.Type) })
	return all
}

type servicesPage struct {
	Contracts []servedContract
	Problem   string
}

// servedContract is a contract, and who answers it now.
type servedContract struct {
	sdk.Contract
	Address  string
	Newest   string
	Unserved bool
	Problem  string
}

func (c *console) services(r *request) (*view, error) {
	p := &servicesPage{}
	list, err := c.contracts(r)
	if err != nil {
		p.Problem = "the registry cannot be read, so only the contracts of the configuration are here: " + sdk.AsError(err).Message
	}
	for _, contract := range list {
		one := servedContract{Contract: contract, Address: "/contracts/" + url.PathEscape(contract.Type)}
		if one.Unserved, err = c.Source.Unserved(r.Context(), contract.Domain, contract.Type); err != nil {
			one.Problem = sdk.AsError(err).Message
		}
		p.Contracts = append(p.Contracts, one)
	}
	return &view{Title: "Services", Template: placeServices, Place: placeServices, Data: p}, nil
}

// contracts are those that agents call, and those of the registry, by their types.
func (c *console) contracts(r *request) ([]sdk.Contract, error) {
	list, err := c.Source.Contracts(r.Context())
	for _, spec := range c.Agents() {
		for i := range spec.Services {
			list = append(list, spec.Services[i].Contract)
		}
	}
	slices.SortStableFunc(list, func(a, b sdk.Contract) int { return cmp.Compare(a.Type, b.Type) })
	return slices.CompactFunc(list, func(a, b sdk.Contract) bool { return a.Type == b.Type }), err
}

type contractPage struct {
	sdk.Contract
	Versions  []contractVersion
	Instances []string
	Problem   string
}

type contractVersion struct {
	Version, Accepts string
	Emits            []emitted
}

func (c *console) contract(r *request) (*view, error) {
	list, err := c.contracts(r)
	i := slices.IndexFunc(list, func(one sdk.Contract) bool { return one.Type == r.PathValue("type") })
	if i < 0 && err != nil {
		return nil, err
	}
	if i < 0 {
		return nil, notFound("neither the registry nor an agent of the configuration has a contract of this type")
	}
	p := &contractPage{Contract: list[i]}
	for version, v := range list[i].Versions {
		p.Versions = append(p.Versions, contractVersion{version, show.VisibleJSON(v.Accepts), emittedBy(v)})
	}
	slices.SortFunc(p.Versions, func(a, b contractVersion) int { return cmp.Compare(b.Version, a.Version) })
	if p.Instances, err = c.Source.Instances(r.Context(), p.Type); err != nil {
		p.Problem = sdk.AsError(err).Message
	}
	return &view{Title: "Contract " + show.Line(p.Type, shortLength), Template: "contract", Place: placeServices, Data: p}, nil
}

func (c *console) health(r *request) (*view, error) {
	e, err := c.Source.Examine(r.Context())
	if err != nil {
		return nil, err
	}
	return &view{Title: "Health", Template: placeHealth, Place: placeHealth, Data: &healthPage{e}}, nil
}

type healthPage struct{ Examination }

// hold pauses an agent.
func (c *console) hold(r *request) (*view, error) {
	spec, err := c.spec(r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	var lasting time.Duration
	if text := strings.TrimSpace(r.PostFormValue("for")); text != "" {
		if lasting, err = time.ParseDuration(text); err != nil || lasting <= 0 {
			return nil, sdk.Errorf(sdk.CodeContractViolation, "%q is not a duration; write one such as 90m or 2h, or leave it out", text)
		}
	}
	if err := c.Source.PauseAgent(r.Context(), spec.Name, lasting, r.PostForm.Has("drain")); err != nil {
		return nil, err
	}
	return &view{To: "/agents/" + url.PathEscape(spec.Name) + "?told=agent-paused"}, nil
}

// release ends the pause of an agent.
func (c *console) release(r *request) (*view, error) {
	spec, err := c.spec(r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	if err := c.Source.ResumeAgent(r.Context(), spec.Name); err != nil {
		return nil, err
	}
	return &view{To: "/agents/" + url.PathEscape(spec.Name) + "?told=agent-resumed"}, nil
}

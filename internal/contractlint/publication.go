package contractlint

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"agentd/internal/contracts"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Publication is what publishing a contract would do.
type Publication struct {
	// New are the versions to publish, Restored those of them that were removed before; Unchanged are there already.
	New, Restored, Unchanged []string
	// Changes is what the new versions change for others, the worst first.
	Changes []Change
}

// Breaking are the changes that break somebody who did nothing wrong.
func (p Publication) Breaking() error {
	faults := breaking(p.Changes)
	if len(faults) == 0 {
		return nil
	}
	return &sdk.Error{
		Code: sdk.CodeConflict, Message: "the contract breaks those who rely on what is published", Faults: faults,
	}
}

// Publish says what publishing contract would do. The error is CodeConflict when it can never be: a version that was
// published with other content, also if it was removed since, or a type or URI that another contract has.
func Publish(r *contracts.Registry, contract sdk.Contract) (Publication, error) {
	var plan Publication
	if err := checkIdentity(r, contract); err != nil {
		return plan, err
	}
	var faults []sdk.Fault
	for _, version := range contracts.Versions(contract) {
		p, ok := r.Version(contract.Type, version)
		switch {
		case !ok:
			plan.New = append(plan.New, version)
		case !p.Same(contract):
			faults = append(faults, sdk.AsError(Conflict(p, contract)).Faults...)
		case p.Removed:
			plan.New, plan.Restored = append(plan.New, version), append(plan.Restored, version)
		default:
			plan.Unchanged = append(plan.Unchanged, version)
		}
	}
	if len(faults) > 0 {
		return plan, &sdk.Error{
			Code: sdk.CodeConflict, Faults: faults,
			Message: "contract " + contract.Type + " has other content for versions that are published, and a version never changes",
		}
	}
	published, err := r.Contract(contract.Type)
	if err != nil { // none of its versions are there: they are compared with each other
		published = contract
		published.Versions = nil
	}
	plan.Changes = Compare(published, with(published, contract))
	return plan, nil
}

// Conflict is the error of whoever publishes p's version with the content that contract has.
func Conflict(p contracts.Published, contract sdk.Contract) error {
	return &sdk.Error{
		Code: sdk.CodeConflict, Faults: breaking(Compare(p.Contract, contracts.Pin(contract, p.Version))),
		Message: "version " + p.Version + " of contract " + p.Contract.Type + " is published with other content, and a version never changes",
	}
}

// Conflicts is the error of whoever has versions of the contract with other content than the registry has; nil when there are none.
// What the registry does not have may be anything.
func Conflicts(r *contracts.Registry, contract sdk.Contract) error {
	var faults []error
	for _, version := range contracts.Versions(contract) {
		if p, ok := r.Version(contract.Type, version); ok && !p.Same(contract) {
			faults = append(faults, Conflict(p, contract))
		}
	}
	return errors.Join(faults...)
}

// AgentConflicts is Conflicts of all contracts of an agent.
func AgentConflicts(r *contracts.Registry, spec sdk.AgentSpec) error {
	faults := []error{Conflicts(r, spec.Contract)}
	for _, s := range spec.Services {
		faults = append(faults, Conflicts(r, s.Contract))
	}
	return errors.Join(faults...)
}

// breaking are the changes that break somebody, as faults of who proposes them.
func breaking(changes []Change) []sdk.Fault {
	var faults []sdk.Fault
	for _, c := range changes {
		if c.Severity == schema.Breaking {
			place := strings.TrimSpace(cmp.Or(c.To, c.From) + " " + c.Side + " " + c.Path)
			faults = append(faults, sdk.Fault{Path: place, Expected: "no change that breaks " + c.Breaks, Got: c.Message})
		}
	}
	return faults
}

// checkIdentity refuses a type or a URI that another contract has, and a type that has another's token.
func checkIdentity(r *contracts.Registry, contract sdk.Contract) error {
	var faults []sdk.Fault
	for _, p := range r.List() {
		other := p.Contract
		switch {
		case wire.SameURI(other.URI, contract.URI) && other.Type != contract.Type:
			faults = append(faults, sdk.Fault{Path: "$.type", Expected: other.Type + ", whose uri is " + other.URI, Got: contract.Type})
		case other.Type == contract.Type && !wire.SameURI(other.URI, contract.URI):
			faults = append(faults, sdk.Fault{Path: "$.uri", Expected: other.URI + ", which is that of " + other.Type, Got: contract.URI})
		case other.Type != contract.Type && wire.NameToken(other.Type) == wire.NameToken(contract.Type):
			faults = append(faults, sdk.Fault{
				Path: "$.type", Expected: "a name in subjects of its own", Got: "that of " + other.Type + ": " + wire.NameToken(other.Type),
			})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &sdk.Error{
		Code: sdk.CodeConflict, Message: "contract " + contract.Type + " cannot be told from another in the registry",
		Faults: slices.Compact(faults),
	}
}

// with is proposed with the published versions that it does not have.
func with(published, proposed sdk.Contract) sdk.Contract {
	versions := map[string]sdk.ContractVersion{}
	maps.Copy(versions, published.Versions)
	maps.Copy(versions, proposed.Versions)
	proposed.Versions = versions
	return proposed
}

package contracts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// IsReference reports whether a service of an agent stands for a contract in the registry that is not looked up yet.
func IsReference(s sdk.ServiceTool) bool { return len(s.Contract.Versions) == 0 }

// ReferenceName is the type by which a contract is looked up, or where that is not known yet its URI.
func ReferenceName(c sdk.Contract) string { return cmp.Or(c.Type, c.URI) }

// CheckReference reports what is wrong with a reference by itself.
func CheckReference(s sdk.ServiceTool) error {
	if s.Contract.URI == "" {
		if err := wire.CheckName(s.Contract.Type); err != nil {
			return err
		}
	}
	_, err := parseRange(ReferenceName(s.Contract), strings.TrimSpace(s.Version))
	return err
}

// Unresolved lists the references of an agent as contract@range.
func Unresolved(spec sdk.AgentSpec) []string {
	var names []string
	for _, s := range spec.Services {
		if IsReference(s) {
			names = append(names, ReferenceName(s.Contract)+"@"+cmp.Or(s.Version, Latest))
		}
	}
	return names
}

// Resolved is the spec without its unresolved references, for checks that connect to nothing, and whether it had any.
// What names a tool (stop_on) is then left out too, because it may be one of those.
func Resolved(spec sdk.AgentSpec) (known sdk.AgentSpec, complete bool) {
	if !slices.ContainsFunc(spec.Services, IsReference) {
		return spec, true
	}
	spec.Services = slices.DeleteFunc(slices.Clone(spec.Services), IsReference)
	spec.StopOn = nil
	return spec, false
}

// UsesRegistry reports whether a service of the agent is from the registry, looked up or not.
func UsesRegistry(spec sdk.AgentSpec) bool {
	return slices.ContainsFunc(spec.Services, func(s sdk.ServiceTool) bool { return s.Range != "" || IsReference(s) })
}

// Bind resolves every service of the agent that is from the registry, also those that were resolved before, and pins the
// exact versions with their content; where all that fit were removed, that is the newest of those. Services with a
// contract of their own stay as they are. The error lists every
// reference that cannot be resolved: CodeConfig when one is wrong, else CodeContractMissing, which may pass.
func Bind(spec sdk.AgentSpec, r *Registry) (sdk.AgentSpec, error) {
	services := slices.Clone(spec.Services)
	missing := &sdk.Error{Code: sdk.CodeContractMissing, Message: "agent " + spec.Name + " uses contracts that the registry does not have"}
	for i, s := range services {
		if s.Range == "" && !IsReference(s) {
			continue
		}
		ref, wanted := ReferenceName(s.Contract), s.Range
		if wanted == "" {
			wanted = cmp.Or(strings.TrimSpace(s.Version), Latest)
		}
		p, err := r.resolveForAgent(ref, wanted)
		if err != nil {
			e := sdk.AsError(err)
			if e.Code != sdk.CodeContractMissing {
				missing.Code, missing.Message = e.Code, "the services of agent "+spec.Name+" cannot be used"
			}
			missing.Faults = append(missing.Faults, sdk.Fault{
				Path: fmt.Sprintf("$.services[%d]", i), Expected: ref + "@" + wanted, Got: e.Message,
			})
			continue
		}
		s.Contract, s.Version, s.Range = p.Contract, p.Version, wanted
		services[i] = s
	}
	if len(missing.Faults) > 0 {
		return spec, missing
	}
	spec.Services = services
	return spec, nil
}

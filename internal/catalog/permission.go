package catalog

import (
	"agentd/internal/approval"
	"agentd/internal/contracts"
	"agentd/internal/toolbox"
	"agentd/sdk"
)

// permissionSchema is the dataschema of permission requests.
var (
	permissionSchema       = sdk.SchemaRef(contracts.Permission().URI, contracts.BuiltinVersion)
	reviewSchema           = sdk.SchemaRef(contracts.PlanReview().URI, contracts.BuiltinVersion)
	permissionResultSchema = sdk.SchemaRef(contracts.Permission().URI, contracts.PermissionResultVersion)
)

// permissionsOf is what rules on the agent's calls: the policy of its spec, the one in force today, and its hook, the
// strictest of them. A run may put further tools under permission, also where the agent has no policy.
func permissionsOf(
	a sdk.Agent, current *sdk.PermissionPolicy, surroundings approval.Options,
) (sdk.PermissionManager, error) {
	var m sdk.PermissionManager
	general := sdk.PermissionPolicyTerms{}
	policies := []*sdk.PermissionPolicy{current}
	if a.Spec.Permissions != current {
		policies = []*sdk.PermissionPolicy{a.Spec.Permissions, current}
	}
	for _, p := range policies {
		if p == nil {
			continue
		}
		compiled, err := approval.Compile(*p, surroundings)
		if err != nil {
			return nil, err
		}
		m = approval.Stricter(m, compiled)
		general = p.Terms
	}
	m = approval.Stricter(m, a.Hooks.Permissions)
	if m == nil {
		m = approval.AllowAll{}
	}
	return approval.Required{Terms: approval.Terms(general), PermissionManager: m}, nil
}

// describe returns what a permission check says of a tool itself.
func describe(tools *toolbox.Toolbox, inline []sdk.Tool) func(string) sdk.PermissionCheck {
	checks := map[string]sdk.PermissionCheck{}
	for _, t := range tools.Callable() {
		c := sdk.PermissionCheck{Parameters: t.Definition.Parameters}
		switch t.Kind {
		case toolbox.Service:
			c.Type, c.Schema, c.Labels = t.Contract.Type, t.SchemaRef(), t.Contract.Labels
		case toolbox.Inline:
			c.Labels = inline[t.Index].Labels
		case toolbox.Builtin:
		}
		checks[t.Name] = c
	}
	return func(tool string) sdk.PermissionCheck { return checks[tool] }
}

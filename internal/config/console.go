package config

// Console is how people log in to agentd console (docs/console.md).
type Console struct {
	OIDC OIDC `json:"oidc"`
}

// OIDC is an identity provider that people log in at. Without an Issuer there is none.
type OIDC struct {
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id"`
	// SecretEnv names the variable of the client's secret, and KeyEnv that of the key that seals cookies; empty are none, and a key that
	// each console makes when it starts.
	SecretEnv string `json:"secret_env"`
	KeyEnv    string `json:"key_env"`
	// URL is where browsers find the console.
	URL    string   `json:"url"`
	Scopes []string `json:"scopes"`
	// Principal and Groups are the claims that name who somebody is, and what they belong to. Dots lead into objects.
	Principal string `json:"principal"`
	Groups    string `json:"groups"`
	// Roles are what groups may do. Who is in none of these groups may not log in.
	Roles []ConsoleRole `json:"roles"`
}

// ConsoleRole is what a group may do in a console.
type ConsoleRole struct {
	Group string `json:"group"`
	Role  string `json:"role"`
	// Domains are those an approver decides in; none is sdk.HumanDomain.
	Domains []string `json:"domains"`
}

// The roles in a console. Everybody with one may look at everything.
const (
	ConsoleViewer   = "viewer"
	ConsoleOperator = "operator"
	ConsoleApprover = "approver"
)

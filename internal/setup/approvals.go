package setup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"agentd/internal/config"
	"agentd/internal/desk/hooks"
	"agentd/sdk"
)

// DefaultTokenEnv is the variable with the token of the desk's HTTP API.
const DefaultTokenEnv = "AGENTD_APPROVALS_TOKEN"

// APIToken is the token of the HTTP API; empty is none.
func APIToken(cfg *config.Config, file string) (string, error) {
	if file == "" {
		return os.Getenv(cmp.Or(cfg.Approvals.TokenEnv, DefaultTokenEnv)), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", sdk.Errorf(sdk.CodeConfig, "token file %s is empty", file)
	}
	return token, nil
}

// webhooks are the configured ones, without their secrets.
func webhooks(cfg *config.Config) []hooks.Hook {
	var list []hooks.Hook
	for _, w := range cfg.Approvals.Webhooks {
		list = append(list, hooks.Hook{URL: w.URL})
	}
	return list
}

// WithSecrets are the configured webhooks. One without its secret is an error: nothing is sent unsigned.
func WithSecrets(cfg *config.Config) ([]hooks.Hook, error) {
	list := webhooks(cfg)
	var missing []error
	for i, w := range cfg.Approvals.Webhooks {
		if list[i].Secret = os.Getenv(w.SecretEnv); list[i].Secret == "" {
			missing = append(missing, sdk.Errorf(sdk.CodeConfig, "webhook %d: environment variable %s is not set", i+1, w.SecretEnv))
		}
	}
	return list, errors.Join(missing...)
}

// approvalDomains are those that the desk shows by configuration.
func approvalDomains(cfg *config.Config) []string {
	if len(cfg.Approvals.Domains) == 0 {
		return []string{sdk.HumanDomain}
	}
	return cfg.Approvals.Domains
}

package setup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"agentd/internal/config"
	"agentd/internal/desk/webhook"
	"agentd/internal/httpguard"
	"agentd/sdk"
)

// DefaultTokenEnv is the variable with the token of the desk's HTTP API.
const DefaultTokenEnv = "AGENTD_APPROVALS_TOKEN"

// APIToken is the token of the HTTP API; empty is none. One that could be guessed is an error.
func APIToken(cfg *config.Config, file string) (string, error) {
	if file == "" {
		name := cmp.Or(cfg.Approvals.TokenEnv, DefaultTokenEnv)
		if token := os.Getenv(name); token != "" {
			return token, httpguard.CheckToken(name, token)
		}
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", sdk.Errorf(sdk.CodeConfig, "token file %s is empty", file)
	}
	return token, httpguard.CheckToken(file, token)
}

// Webhooks are the configured ones, with their secrets. One without its secret is an error: nothing is sent unsigned.
func Webhooks(cfg *config.Config) ([]webhook.Target, error) {
	var list []webhook.Target
	var faults []error
	for i, w := range cfg.Approvals.Webhooks {
		secret := os.Getenv(w.SecretEnv)
		if secret == "" {
			faults = append(faults, sdk.Errorf(sdk.CodeConfig, "webhook %d: set the environment variable %s to its secret", i+1, w.SecretEnv))
		}
		key, err := webhook.Key(secret)
		if err != nil {
			faults = append(faults, fmt.Errorf("webhook %d: environment variable %s: %w", i+1, w.SecretEnv, err))
		}
		list = append(list, webhook.Target{URL: w.URL, Key: key})
	}
	return list, errors.Join(faults...)
}

// approvalDomains are those that the desk shows by configuration.
func approvalDomains(cfg *config.Config) []string {
	if len(cfg.Approvals.Domains) == 0 {
		return []string{sdk.HumanDomain}
	}
	return cfg.Approvals.Domains
}

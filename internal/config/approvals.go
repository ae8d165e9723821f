package config

import (
	"net/url"
	"regexp"

	"agentd/sdk/wire"

	"agentd/internal/config/strict"
)

// Approvals is how people are asked and answer (docs/approvals.md).
type Approvals struct {
	// As is the principal that decisions are published as; empty is found out.
	As string
	// Domains are those that the desk shows; none is sdk.HumanDomain alone.
	Domains []string
	// HTTP is the address of the desk's HTTP API in agentd dev; empty is none. TokenEnv names the variable of its token.
	HTTP, TokenEnv string
	// Key is the path of the Ed25519 key that decisions are signed with, a PEM file; empty signs none. It is read when it is
	// needed.
	Key string
	// Webhooks are told of what is asked.
	Webhooks []Webhook
}

// Webhook is a URL that is told of what is asked, signed with the secret in the variable that SecretEnv names.
type Webhook struct{ URL, SecretEnv string }

type approvalsFile struct {
	At       strict.Position
	As       words   `yaml:"as"`
	Domains  []words `yaml:"domains"`
	HTTP     words   `yaml:"http"`
	TokenEnv words   `yaml:"token_env"`
	Key      words   `yaml:"key"`
	Webhooks []struct {
		At        strict.Position
		URL       words `yaml:"url"`
		SecretEnv words `yaml:"secret_env"`
	} `yaml:"webhooks"`
}

// principal is what the last token of a subject may be.
var principal = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func (l *loader) approvals(f *approvalsFile) {
	if f == nil {
		return
	}
	a := &l.cfg.Approvals
	a.As, a.Domains, a.HTTP, a.TokenEnv = f.As.V, texts(f.Domains), f.HTTP.V, f.TokenEnv.V
	if f.Key.V != "" {
		a.Key = l.path(f.Key.V)
	}
	if a.As != "" && !principal.MatchString(a.As) {
		l.Faultf(f.As.Position, "%q cannot be a principal: want 1 to 128 letters, digits, _ and -", a.As)
	}
	for _, d := range f.Domains {
		if d.V != "*" {
			l.Note(d.Position, wire.CheckDomain(d.V))
		}
	}
	if a.TokenEnv != "" && !envName.MatchString(a.TokenEnv) {
		l.Faultf(f.TokenEnv.Position, "token_env is not the name of an environment variable") // it may be the token itself
	}
	for _, w := range f.Webhooks {
		target, err := url.Parse(w.URL.V)
		if err != nil || target.Host == "" || target.Scheme != "https" && target.Scheme != "http" {
			l.Faultf(w.At, "url: want an http or https URL")
		}
		if !envName.MatchString(w.SecretEnv.V) {
			l.Faultf(w.At, "a webhook needs secret_env: the name of the environment variable with the secret that it is signed with")
		}
		a.Webhooks = append(a.Webhooks, Webhook{w.URL.V, w.SecretEnv.V})
	}
}

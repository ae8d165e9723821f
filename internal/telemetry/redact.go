package telemetry

import (
	"regexp"
	"strings"
)

// Redacted stands for what is not shown.
const Redacted = "[redacted]"

// secretNames are names of settings, headers and fields whose values are secrets, however they are spelt.
const secretNames = `(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|authorization|cookie|credentials?|nkey)` //nolint:gosec // names of secrets, no secret

var secrets = []struct {
	pattern *regexp.Regexp
	with    string
}{
	// "password": "…" in JSON, and \"password\": \"…\" in JSON within JSON, also where the text is cut before the value ends
	{regexp.MustCompile(`(?i)("[\w.-]*` + secretNames + `"\s*:\s*")(?:[^"\\]|\\.)*(?:"|\\?$)`), "${1}" + Redacted + `"`},
	{regexp.MustCompile(`(?i)(\\+"[\w.-]*` + secretNames + `\\+"\s*:\s*\\+")[^"\\]*(\\+"|\\*…?$)`), "${1}" + Redacted + "${2}"},
	// Authorization: Bearer …, password=…
	{regexp.MustCompile(`(?i)\b(` + secretNames + `)(\s*[:=]\s*)(?:(?:bearer|basic)\s+)?[^\s"',;&{}\[\]]+`), "${1}${2}" + Redacted},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9+/=._~-]{8,}`), "${1} " + Redacted},
	// scheme://user:password@host
	{regexp.MustCompile(`(\w+://)[^/\s:@"']*:[^/\s@"']+@`), "${1}" + Redacted + "@"},
	// keys of model vendors and clouds, tokens of code hosts, JSON Web Tokens, NATS seeds
	{regexp.MustCompile(`\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}`), Redacted},
	{regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`), Redacted},
	{regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{20,}`), Redacted},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), Redacted},
	{regexp.MustCompile(`\bS[AOUNCX][A-Z2-7]{56}\b`), Redacted},
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), Redacted},
}

// Redact returns text without the secrets that can be told by their name or form. It cannot know what else is
// confidential: contents stay out of telemetry unless they are asked for.
func Redact(text string) string {
	if len(text) < len("pass=x") {
		return text
	}
	for _, s := range secrets {
		text = s.pattern.ReplaceAllString(text, s.with)
	}
	return text
}

// Secret reports whether values under that name are secrets, such as the name of a header.
func Secret(name string) bool { return secretName.MatchString(strings.ToLower(name)) }

var secretName = regexp.MustCompile(`(?:^|[\w.-])` + secretNames + `$|^` + secretNames + `$`)

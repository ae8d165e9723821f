package dlq

import (
	"unicode/utf8"

	"agentd/internal/broker"
	"agentd/internal/telemetry"
)

// redactLetter is the letter without what looks like a secret.
func redactLetter(l broker.Letter) broker.Letter {
	l.Detail = telemetry.Redact(l.Detail)
	if utf8.Valid(l.Data) {
		l.Data = []byte(telemetry.Redact(string(l.Data)))
	}
	headers := make(map[string][]string, len(l.Headers))
	for name, values := range l.Headers {
		shown := make([]string, len(values))
		for i, value := range values {
			if shown[i] = telemetry.Redact(value); telemetry.Secret(name) {
				shown[i] = telemetry.Redacted
			}
		}
		headers[name] = shown
	}
	l.Headers = headers
	return l
}

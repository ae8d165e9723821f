// Package finding is what is found of servers and stores that should be otherwise, and what to do about it.
package finding

import (
	"fmt"
	"slices"
	"strings"
)

// Severity of a finding.
type Severity string

// The severities. With an error, agentd does not keep its promises.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Finding is something about a server or a store that should be otherwise.
type Finding struct {
	// Code is stable, for scripts.
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// Server is the address of the one that is meant, where there may be several; empty where Message says what is meant.
	Server  string `json:"server,omitempty"`
	Message string `json:"message"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`
}

// Error is a finding with which agentd does not keep its promises.
func Error(code, message, remedy string) Finding {
	return Finding{Code: code, Severity: SeverityError, Message: message, Remedy: remedy}
}

// Warning is a finding that agentd works with.
func Warning(code, message, remedy string) Finding {
	return Finding{Code: code, Severity: SeverityWarning, Message: message, Remedy: remedy}
}

// CodeNotPermitted is the code of NotPermitted.
const CodeNotPermitted = "not_permitted"

// NotPermitted is the finding that something was not examined, because the server refuses it to this user.
func NotPermitted(what, unknown string) Finding {
	return Warning(CodeNotPermitted, "this NATS user may not "+what+"; "+unknown+" was not examined",
		"run agentd doctor as the operator's user (docs/security.md) to examine everything")
}

// Some names the first few of a list.
func Some(list []string) string {
	const few = 3
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(list[:few], ", "), len(list)-few)
}

// On is the finding, of that server.
func (f Finding) On(server string) Finding {
	f.Server = server
	return f
}

// Text is the message, with the server that it is about.
func (f Finding) Text() string {
	if f.Server == "" {
		return f.Message
	}
	return f.Server + ": " + f.Message
}

// Serious reports whether any finding is an error.
func Serious(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == SeverityError })
}

package wire

import (
	"regexp"

	"agentd/sdk"
)

var notPrincipal = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// CheckPrincipal reports whether a name can be that of a principal: it becomes the last token of a subject. Empty is anonymous.
func CheckPrincipal(who string) error {
	if who != "" && !IsToken(who, longestName) {
		return sdk.Errorf(sdk.CodeConfig, "%q cannot be a principal: want 1 to 128 letters, digits, _ and -", who)
	}
	return nil
}

// PrincipalToken is a name with what no principal has replaced by "_".
func PrincipalToken(name string) string { return notPrincipal.ReplaceAllString(name, "_") }

package httpguard

import (
	"net/http"

	"agentd/sdk"
)

// Status is the status of an answer that is an error. What a request cannot be about, such as how a run ended, is internal.
func Status(code sdk.Code) int {
	switch code {
	case sdk.CodeUnknownRun, sdk.CodeUnknownAgent, sdk.CodeUnknownTool:
		return http.StatusNotFound
	case sdk.CodePermissionDenied, sdk.CodePermissionNeeded, sdk.CodeIdentityRequired, sdk.CodeBlocked:
		return http.StatusForbidden
	case sdk.CodeConflict, sdk.CodeRunExists, sdk.CodeDecisionRefused, sdk.CodeMessageRefused, sdk.CodeRetryRefused, sdk.CodeUndoRefused, sdk.CodeCancelRefused:
		return http.StatusConflict
	case sdk.CodeInvalidEvent, sdk.CodeContractViolation, sdk.CodeContractMissing, sdk.CodeConfig:
		return http.StatusUnprocessableEntity
	case sdk.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case sdk.CodeRateLimited:
		return http.StatusTooManyRequests
	case sdk.CodeUnavailable:
		return http.StatusServiceUnavailable
	case sdk.CodeDeadline:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

package httpguard_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/httpguard"
	"agentd/sdk"
)

// codes are all that package sdk has.
func codes(t *testing.T) []sdk.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../sdk/error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []sdk.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Code" {
			for _, value := range spec.Values {
				text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, sdk.Code(text))
			}
		}
		return true
	})
	return list
}

func TestStatus_OfEveryCode(t *testing.T) {
	t.Parallel()
	want := map[sdk.Code]int{
		sdk.CodeUnknownRun: 404, sdk.CodeUnknownAgent: 404, sdk.CodeUnknownTool: 404,
		sdk.CodePermissionDenied: 403, sdk.CodePermissionNeeded: 403, sdk.CodeIdentityRequired: 403, sdk.CodeBlocked: 403,
		sdk.CodeConflict: 409, sdk.CodeRunExists: 409, sdk.CodeDecisionRefused: 409, sdk.CodeMessageRefused: 409,
		sdk.CodeRetryRefused: 409, sdk.CodeUndoRefused: 409, sdk.CodeCancelRefused: 409,
		sdk.CodeInvalidEvent: 422, sdk.CodeContractViolation: 422, sdk.CodeContractMissing: 422, sdk.CodeConfig: 422,
		sdk.CodeTooLarge: 413, sdk.CodeRateLimited: 429, sdk.CodeUnavailable: 503, sdk.CodeDeadline: 504,
		sdk.CodeInternal: 500, sdk.CodeCorrupt: 500, sdk.CodeStateLost: 500, sdk.CodePoison: 500,
		// how a run or a call ended
		sdk.CodeQuotaExhausted: 500, sdk.CodeCancelled: 500, sdk.CodeModel: 500, sdk.CodeTool: 500, sdk.CodeStalled: 500,
		sdk.CodeNoAnswer: 500, sdk.CodeTerminated: 500, sdk.CodeUndone: 500, sdk.CodeOutcomeUnknown: 500,
	}
	got := map[sdk.Code]int{}
	for _, code := range codes(t) {
		got[code] = httpguard.Status(code)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

package sdk_test

import (
	"errors"
	"fmt"
	"testing"

	"agentd/sdk"
)

// Whoever returns a nil *Error as an error has it told as a failure of their own, and nobody panics.
func TestAsError_OfANilError(t *testing.T) {
	t.Parallel()
	var none *sdk.Error
	refused := sdk.Errorf(sdk.CodeModel, "refused")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nil":          {none, "internal: internal error: a nil *sdk.Error was returned as an error"},
		"nil, wrapped": {fmt.Errorf("look: %w", error(none)), "internal: internal error: a nil *sdk.Error was returned as an error"},
		"one":          {fmt.Errorf("look: %w", refused), "model_failed: refused"},
		"another":      {errors.New("away"), "internal: internal error: away"},
	} {
		if got := sdk.AsError(c.err).Error(); got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

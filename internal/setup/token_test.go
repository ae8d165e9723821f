package setup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentd/internal/config"
	"agentd/sdk"
)

func TestAPIToken_IsNoneThatCouldBeGuessed(t *testing.T) {
	cfg := config.Default()
	cfg.Approvals.TokenEnv = "TOKEN_OF_THIS_TEST"
	file := filepath.Join(t.TempDir(), "token")
	for token, ok := range map[string]bool{"": true, "x": false, "fifteen-of-them": false, "sixteen-of-them!": true} {
		t.Setenv(cfg.Approvals.TokenEnv, token)
		got, err := APIToken(cfg, "")
		if (err == nil) != ok || ok && got != token || !ok && !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("in the variable %q: %q, %v", token, got, err)
		}
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err = APIToken(cfg, file)
		if ok = ok && token != ""; (err == nil) != ok || ok && got != token || !ok && !strings.Contains(err.Error(), file) {
			t.Errorf("in the file %q: %q, %v", token, got, err)
		}
	}
}

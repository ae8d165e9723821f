package deploy_test

import (
	"os/exec"
	"testing"
)

// What docs/operations.md has where nothing can be pulled, as it is typed.
func TestDocs_ImagesWithoutARegistry(t *testing.T) {
	provider := localEngine(t)
	if _, err := exec.LookPath("docker"); err != nil {
		t.Skip("the docker command is missing")
	}
	typed := example(t, "Dockerfile.local")
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", typed)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if code, out := once(t, provider, "agentd:local", nil, "version"); code != 0 {
		t.Errorf("agentd version ends with %d: %s", code, out)
	}
}

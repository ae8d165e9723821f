package deploy_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// What docs/operations.md has where nothing can be pulled, as it is typed.
func TestDocs_ImagesWithoutARegistry(t *testing.T) {
	provider := localEngine(t)
	if _, err := exec.LookPath("docker"); err != nil {
		t.Skip("there is no docker command")
	}
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var typed string
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], "Dockerfile.local") {
			typed = m[1]
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", typed)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil || typed == "" {
		t.Fatalf("%v\n%s", err, out)
	}
	if code, out := once(t, provider, "agentd:local", nil, "version"); code != 0 {
		t.Errorf("agentd version ends with %d: %s", code, out)
	}
}

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What a person types at a prompt, as docs/services.md has it.
func TestDocs_AnswerByHand(t *testing.T) {
	t.Parallel()
	c := shellCommand(t)
	w := newWorld(t, docContract(t), time.Minute, city("Bern"))
	r := w.start("trip")
	w.Suspended(r, 1) // so that there is a call to be read
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".agentd"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A server of agentd dev asks nobody who they are.
	if err := os.WriteFile(filepath.Join(dir, ".agentd", "address"), []byte("nats://worker:hot@"+w.host+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	typed := func(lines string) string {
		t.Helper()
		cmd := exec.Command("bash", "-euc", lines)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), c.env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", lines, err, out)
		}
		return string(out)
	}
	read, answer, found := strings.Cut(docBlock(t, "bash", "nats consumer next"), "call=")
	if !found {
		t.Fatal("docs/services.md names no call")
	}
	shown := regexp.MustCompile(`subj: (agentd\.out\.\S+) .*\n(?s:.*)"city":"Bern"`).FindStringSubmatch(typed(read))
	if shown == nil {
		t.Fatal("nats consumer next shows no call")
	}
	address, _, _ := strings.Cut(read, "\n")
	_, answer, _ = strings.Cut(answer, "\n")
	typed(address + "\ncall=" + shown[1] + "\n" + answer)
	if got := w.results(r); len(got) != 1 || got[0] != (result{Text: `{"text":"sunny in Bern"}`}) {
		t.Errorf("the model was told %+v", got)
	}
	w.settled()
}

// The docs name the versions that are tested.
func TestDocs_NamePackagesByTheirVersions(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("node/package.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\S+@[0-9.]+`).FindAllString(docBlock(t, "bash", "npm install"), -1) {
		at := strings.LastIndex(name, "@")
		if want := `"` + name[:at] + `": "` + name[at+1:] + `"`; !strings.Contains(string(manifest), want) {
			t.Errorf("node/package.json does not have %s", want)
		}
	}
}

package state

import (
	"regexp"
	"strings"
	"testing"

	"agentd/internal/runner"
)

func TestCheckRecord_TakesEtagsOfTheForm(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	for _, etag := range []string{
		"", "a", "z", "A", "Z", "0", "9", "_", "-", "a-b_C9", strings.Repeat("x", 64), strings.Repeat("x", 65),
		"`", "{", "@", "[", "/", ":", "a b", "a\n", "\na", "é", "a\x00",
	} {
		err := CheckRecord(runner.Version{}, runner.Record{Version: runner.Version{Rev: 1, Etag: etag}})
		if ok := err == nil; ok != form.MatchString(etag) {
			t.Errorf("etag %q: %v", etag, err)
		}
	}
	err := CheckRecord(runner.Version{}, runner.Record{Version: runner.Version{Rev: 1, Etag: "a b"}})
	const want = `entry 1: etag "a b": want 1 to 64 letters, digits, _ and -`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

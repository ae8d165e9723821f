package finding

import "testing"

func TestFinding_SaysWhichServerItIsAbout(t *testing.T) {
	t.Parallel()
	f := Warning("redis_config_unchecked", "the setting appendonly could not be checked", "look")
	if got := f.Text(); got != "the setting appendonly could not be checked" {
		t.Errorf("of one that names no server: %q", got)
	}
	if got := f.On("redis:6379").Text(); got != "redis:6379: the setting appendonly could not be checked" {
		t.Errorf("of one that does: %q", got)
	}
}

func TestSerious_IsWhereAnErrorIs(t *testing.T) {
	t.Parallel()
	warning, problem := Warning("a", "b", "c"), Error("a", "b", "c")
	if Serious(nil) || Serious([]Finding{warning}) || !Serious([]Finding{warning, problem}) {
		t.Error("an error is not told from a warning")
	}
}

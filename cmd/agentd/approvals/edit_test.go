package approvals

import (
	"slices"
	"testing"
)

func TestEditorCommand_IsTheFirstThatIsSet(t *testing.T) {
	for _, tt := range []struct {
		visual, editor string
		want           []string
	}{
		{"code --wait", "nano", []string{"code", "--wait"}}, {"", " nano ", []string{"nano"}}, {" ", "nano", []string{"nano"}}, {" ", "\t", []string{"vi"}},
	} {
		t.Setenv("VISUAL", tt.visual)
		t.Setenv("EDITOR", tt.editor)
		if got := editorCommand(); !slices.Equal(got, tt.want) {
			t.Errorf("VISUAL=%q EDITOR=%q: %q, want %q", tt.visual, tt.editor, got, tt.want)
		}
	}
}

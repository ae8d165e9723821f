package schema

import (
	"encoding/json"
	"testing"
)

// Drafts 4 to 7 check formats, of texts; in the dialects after them a format is an annotation.
func TestSchema_ChecksTheFormatsOfTheOlderDialects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		format, fits, not string
	}{
		{"date", "2026-12-04", "tomorrow"},
		{"email", "anna@example.com", "anna"},
		{"idn-email", "änna@exämple.com", "änna"},
		{"uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08"},
		{"regex", "^a+$", "(a"},
	} {
		for d, checks := range map[dialect]bool{draft4: true, draft6: true, draft7: true, draft2019: false, draft2020: false} {
			s := mustCompile(t, in(metaschemas[d], `"items": {"format": "`+tt.format+`"}`))
			if err := s.Validate(texts(t, tt.fits)); err != nil {
				t.Errorf("%s: %q does not fit %s: %v", metaschemas[d], tt.fits, tt.format, err)
			}
			if err := s.Validate(texts(t, tt.not)); (err != nil) != checks {
				t.Errorf("%s: %q is held against %s: %v", metaschemas[d], tt.not, tt.format, err)
			}
			if err := s.Validate(json.RawMessage(`[7]`)); err != nil {
				t.Errorf("%s: a value that is not a text is held against %s: %v", metaschemas[d], tt.format, err)
			}
		}
	}
}

// Formats that the validator knows and the dialects do not have are names like any other.
func TestSchema_ChecksNoOtherFormats(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"duration", "period", "semver", "postcode"} {
		for _, d := range []dialect{draft4, draft7, draft2020} {
			s := mustCompile(t, in(metaschemas[d], `"items": {"format": "`+format+`"}`))
			if err := s.Validate(texts(t, "anything")); err != nil {
				t.Errorf("%s: %s is checked: %v", metaschemas[d], format, err)
			}
		}
	}
}

// texts is a JSON list of one text.
func texts(t *testing.T, text string) json.RawMessage {
	t.Helper()
	data, err := json.Marshal([]string{text})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

package excerpt_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/internal/excerpt"
	"agentd/sdk"
)

// pieces are what texts of tests are made of: characters of one to four bytes, and some of several runes.
var pieces = []string{"a", "b", "é", "汉", "🛫", " ", "\n", "e\u0301", "👩\u200d🚀", "❤\ufe0f"}

// whole reports whether text is made of whole pieces.
func whole(text string) bool {
	for text != "" {
		longest := ""
		for _, p := range pieces {
			if strings.HasPrefix(text, p) && len(p) > len(longest) {
				longest = p
			}
		}
		if longest == "" {
			return false
		}
		text = text[len(longest):]
	}
	return true
}

// A text that is cut keeps its two ends, as long as they may be, and no character is cut.
func TestOf_CutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 200).Draw(t, "pieces"), "")
		limit := rapid.IntRange(12, 120).Draw(t, "limit")
		ends := excerpt.Of(text, limit-limit/3, limit/3)
		if !strings.HasPrefix(text, ends.Head) || !strings.HasSuffix(text, ends.Tail) || ends.Size != len(text) {
			t.Fatalf("%q has the ends %+v", text, ends)
		}
		if n := utf8.RuneCountInString(ends.Head + ends.Tail); n > limit || !ends.Whole() && n < limit/2 {
			t.Fatalf("%d characters of %d are shown, of at most %d", n, utf8.RuneCountInString(text), limit)
		}
		if !whole(ends.Head) || !whole(ends.Tail) {
			t.Fatalf("a character of %q is cut: %q and %q", text, ends.Head, ends.Tail)
		}
		if ends.Whole() != (utf8.RuneCountInString(text) <= limit) {
			t.Fatalf("%q of at most %d characters is shown as %+v", text, limit, ends)
		}
		shorter := ends.Shorter(12)
		if !strings.HasPrefix(text, shorter.Head) || !strings.HasSuffix(text, shorter.Tail) || utf8.RuneCountInString(shorter.Head+shorter.Tail) > 12 {
			t.Fatalf("%q has the shorter ends %+v", text, shorter)
		}
	})
}

// Who reads from where each piece says that the next one begins has read the text.
func TestAt_ReadsAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 200).Draw(t, "pieces"), "")
		limit := rapid.IntRange(1, 50).Draw(t, "limit")
		read := ""
		for offset := 0; ; {
			p := excerpt.At(text, offset, limit)
			if p.Offset != len(read) || p.Size != len(text) || !whole(p.Text) || p.Text == "" {
				t.Fatalf("after %d bytes comes %+v", len(read), p)
			}
			read += p.Text
			if p.Next == 0 {
				break
			}
			offset = p.Next
		}
		if read != text {
			t.Fatalf("%q was read of %q", read, text)
		}
		inside := excerpt.At(text, rapid.IntRange(0, len(text)-1).Draw(t, "offset"), limit)
		if !whole(inside.Text) || !strings.HasPrefix(text[inside.Offset:], inside.Text) {
			t.Fatalf("from inside a character comes %+v", inside)
		}
	})
}

func TestOf_CutsAtALine(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a line of a file\n", 2000)
	ends := excerpt.Of(text, 4000, 2000)
	if !strings.HasSuffix(ends.Head, "file\n") || !strings.HasPrefix(ends.Tail, "a line") || len(ends.Head) < 3500 || len(ends.Tail) < 1750 {
		t.Errorf("the ends have %d and %d bytes: …%q, %q…", len(ends.Head), len(ends.Tail), ends.Head[len(ends.Head)-20:], ends.Tail[:20])
	}
	want := "\n[bytes 3995 to 32011 of 34000 are left out here; to read on, call read_more with result \"c1-0\" and offset 3995]\n"
	if shown := ends.String("c1-0"); shown != ends.Head+want+ends.Tail {
		t.Errorf("the notice is %q", shown[len(ends.Head):len(shown)-len(ends.Tail)])
	}
}

func TestText_IsWhatAModelReads(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`"a\n\"é\""`:              "a\n\"é\"",
		`{"text":"a\nb"}`:         "a\nb",
		`{"text":"a","size":1}`:   `{"text":"a","size":1}`,
		`{"n":1}`:                 `{"n":1}`,
		`{"text":{"text":"a"}}`:   `{"text":{"text":"a"}}`,
		`[{"text":"a"},"b",null]`: `[{"text":"a"},"b",null]`,
	} {
		if got := excerpt.Text(data); got != want {
			t.Errorf("%s is read as %q", data, got)
		}
	}
}

func TestSplitMedia_TakesImagesAndSoundsOut(t *testing.T) {
	t.Parallel()
	image, sound := sdk.Media{MIME: "image/png", Data: "aW1hZ2U="}, sdk.Media{MIME: "audio/wav", Data: "c291bmQ="}
	for name, c := range map[string]struct {
		data, rest string
		media      []sdk.Media
	}{
		"none":  {`{"n":1}`, `{"n":1}`, nil},
		"image": {`{"content":[{"data":"aW1hZ2U=","mimeType":"image/png","type":"image"}]}`, `{"content":[{"medium":1,"mimeType":"image/png","type":"image"}]}`, []sdk.Media{image}},
		"both": {
			`{"b":{"data":"c291bmQ=","mimeType":"audio/wav","type":"audio"},"a":[{"data":"aW1hZ2U=","mimeType":"image/png","type":"image"}]}`,
			`{"a":[{"medium":1,"mimeType":"image/png","type":"image"}],"b":{"medium":2,"mimeType":"audio/wav","type":"audio"}}`,
			[]sdk.Media{image, sound},
		},
		"resource": {
			`{"resource":{"blob":"aW1hZ2U=","mimeType":"image/png","uri":"file:///a"}}`,
			`{"resource":{"medium":1,"mimeType":"image/png","uri":"file:///a"}}`,
			[]sdk.Media{image},
		},
		"text": {`{"mimeType":"text/plain","text":"image/png"}`, `{"mimeType":"text/plain","text":"image/png"}`, nil},
	} {
		rest, media := excerpt.SplitMedia(json.RawMessage(c.data))
		if string(rest) != c.rest {
			t.Errorf("%s: %s is left", name, rest)
		}
		if diff := cmp.Diff(c.media, media); diff != "" {
			t.Errorf("%s: media (-want +got):\n%s", name, diff)
		}
	}
}

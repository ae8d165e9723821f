package browser

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

var screenshots = flag.String("browser.screenshots", "", "folder for pictures of all pages; without one, none are taken")

// Pictures of every page, in light and dark colours, on a wide and a narrow screen: for people to look at.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("pictures are taken where somebody wants to look at them: make screenshots")
	}
	if err := os.MkdirAll(*screenshots, 0o750); err != nil {
		t.Fatal(err)
	}
	f := furnish(t)
	b := newTab(t, f.console)
	b.expects("404", "422")
	b.pictures(f.places()...)
	s := staff(t)
	newTab(t, s.console).pictures(place{pictureLogin, "/inbox"})
	s.logsIn("/inbox", "vic", "staff").pictures(place{pictureRequestViewer, s.request}, place{pictureRunViewer, "/runs/lisbon"})
	s.logsIn("/inbox", "anna", "desk").pictures(place{pictureRequestApprover, s.request})
}

// The pictures of pages that people see who log in.
const (
	pictureLogin           = "login"
	pictureRequestViewer   = "request-viewer"
	pictureRunViewer       = "run-viewer"
	pictureRequestApprover = "request-approver"
)

// Of every page the documentation has pictures in light and dark colours, wide and narrow.
func TestScreenshots_AreInTheDocumentation(t *testing.T) {
	t.Parallel()
	const folder = "../../docs/console"
	text, err := os.ReadFile(folder + ".md")
	if err != nil {
		t.Fatal(err)
	}
	places := append(furnished{}.places(), place{name: pictureLogin}, place{name: pictureRequestViewer}, place{name: pictureRunViewer}, place{name: pictureRequestApprover})
	var want []string
	for _, p := range places {
		for _, width := range widths {
			for _, scheme := range schemes {
				file := pictureName(p, scheme, width)
				if want = append(want, filepath.Join(folder, file)); !strings.Contains(string(text), `"console/`+file+`"`) {
					t.Errorf("docs/console.md does not show %s", file)
				}
			}
		}
	}
	slices.Sort(want)
	got, err := filepath.Glob(folder + "/*")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: the folder has %q; want %q: make screenshots DIR=docs/console", err, got, want)
	}
}

var (
	widths  = []int64{1440, 390}
	schemes = []string{"light", "dark"}
)

func pictureName(p place, scheme string, width int64) string {
	return fmt.Sprintf("%s-%s-%d.png", p.name, scheme, width)
}

// pictures takes pictures of pages.
func (b *tab) pictures(places ...place) {
	b.t.Helper()
	for _, width := range widths {
		b.do(chromedp.EmulateViewport(width, 900))
		for _, scheme := range schemes {
			b.scheme(scheme)
			for _, p := range places {
				b.open(p.path)
				b.unfolded("details.child")
				if scroll := eval[int64](b, `document.documentElement.scrollWidth`); scroll > width {
					b.t.Errorf("%s is %d px wide on a screen of %d", p.path, scroll, width)
				}
				picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
				if err == nil {
					picture, err = small(picture)
				}
				if err != nil {
					b.t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(*screenshots, pictureName(p, scheme, width)), picture, 0o600); err != nil {
					b.t.Fatal(err)
				}
			}
		}
	}
}

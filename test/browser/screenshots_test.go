package browser

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	newTab(t, s.console).pictures(place{"login", "/inbox"})
	s.logsIn("/inbox", "vic", "staff").pictures(place{"request-viewer", s.request}, place{"run-viewer", "/runs/lisbon"})
	s.logsIn("/inbox", "anna", "desk").pictures(place{"request-approver", s.request})
}

// pictures takes pictures of pages.
func (b *tab) pictures(places ...place) {
	b.t.Helper()
	for _, width := range []int64{1440, 390} {
		b.do(chromedp.EmulateViewport(width, 900))
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			for _, p := range places {
				b.open(p.path)
				if scroll := eval[int64](b, `document.documentElement.scrollWidth`); scroll > width {
					b.t.Errorf("%s is %d px wide on a screen of %d", p.path, scroll, width)
				}
				picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
				if err != nil {
					b.t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(*screenshots, fmt.Sprintf("%s-%s-%d.png", p.name, scheme, width)), picture, 0o600); err != nil {
					b.t.Fatal(err)
				}
			}
		}
	}
}

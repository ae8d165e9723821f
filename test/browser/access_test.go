package browser

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// axe is axe-core 4.14.1, axe.min.js, as it is published (MPL-2.0): it finds what people with disabilities cannot use.
//
//go:embed testdata/axe/axe.min.js
var axe string

func TestAxe_IsWhatWasPublished(t *testing.T) {
	const want = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
	if sum := sha256.Sum256([]byte(axe)); hex.EncodeToString(sum[:]) != want {
		t.Errorf("axe.min.js has the SHA-256 %x; want %s", sum, want)
	}
}

// scheme has the tab prefer colours.
func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}

// unfolded shows what the page has folded.
func (b *tab) unfolded(selector string) {
	b.t.Helper()
	eval[int](b, `[...document.querySelectorAll(`+quoted(selector)+`)].map((e) => { e.open = true; }).length`)
}

// accessible fails the test if the page, with all that it has folded, is one that somebody cannot use, in light or dark colours.
func (b *tab) accessible() {
	b.t.Helper()
	b.unfolded("details")
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.do(chromedp.Evaluate[chromedp.Void](axe + ";undefined"))
		found := eval[[]struct {
			ID, Help string
			Nodes    []struct{ HTML, FailureSummary string }
		}](b, `axe.run(document, {resultTypes: ["violations"]}).then((r) => {
			if (r.passes.length < 10) throw new Error("axe looked at nothing");
			return r.violations.map((v) => ({ID: v.id, Help: v.help, Nodes: v.nodes.map((n) => ({HTML: n.html, FailureSummary: n.failureSummary}))}));
		})`)
		for _, v := range found {
			for _, n := range v.Nodes {
				b.t.Errorf("%s, %s: %s: %s\n%s\n%s", b.location(), scheme, v.ID, v.Help, n.HTML, n.FailureSummary)
			}
		}
	}
}

// unreached are the controls of the page to which the tab key does not come.
func (b *tab) unreached() string {
	b.t.Helper()
	n := eval[int](b, `(() => {
		// A row that changes meanwhile is another element with the same controls.
		window.same = (e) => e.id || e.getAttribute("href") || e.getAttribute("aria-label") || e.outerHTML;
		window.reached = new Set();
		document.addEventListener("focusin", (e) => window.reached.add(window.same(e.target)));
		const all = "a[href], button:not(:disabled), input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
		window.controls = () => [...document.querySelectorAll(all)].filter((e) => e.checkVisibility() && !e.closest("dialog"));
		return window.controls().length;
	})()`)
	left := ""
	for range 4 { // a row that changes while it has the focus has the tab key begin anew
		b.do(chromedp.KeyEvent(strings.Repeat(kb.Tab, n+1)))
		left = eval[string](b, `window.controls().filter((e) => !window.reached.has(window.same(e))).map((e) => e.outerHTML.slice(0, 120)).join("\n")`)
		if left == "" {
			break
		}
	}
	return left
}

// Everybody can use every page: without a violation that axe knows of, in both colour schemes, with the tab key alone.
func TestPages_CanBeUsedByEverybody(t *testing.T) {
	t.Parallel()
	f := furnish(t)
	b := newTab(t, f.console)
	b.expects("404", "422")
	for _, p := range f.places() {
		b.open(p.path)
		if left := b.unreached(); left != "" {
			t.Errorf("%s: the tab key does not come to\n%s", p.path, left)
		}
		b.accessible()
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a token of a test, which is long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := newTab(t, f.startConsole("--token-file", token).address())
	locked.open("/inbox")
	locked.shows("Log in")
	locked.accessible()
	locked.fill("input[type=password]", "a token of a test, which is long enough")
	locked.leads(typing(kb.Enter))
	if got := locked.location(); got != "/inbox" {
		t.Errorf("the login leads to %s", got)
	}
	locked.accessible() // it is read-only
}

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"agentd/test/missing"
)

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "agentd-browser-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(closeBrowser(), os.RemoveAll(bin)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// closeBrowser ends the browser, when there is one.
var closeBrowser = func() error { return nil }

// program is the browser's; empty is that none is installed.
var program = sync.OnceValue(func() string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
})

// What the tests say is of a browser: of which, stands in the log.
func TestBrowser_SaysItsVersion(t *testing.T) {
	needsBrowser(t)
	out, err := exec.CommandContext(t.Context(), program(), "--version").Output()
	if err != nil || len(out) == 0 {
		t.Fatalf("%s does not say its version: %v", program(), err)
	}
	t.Logf("%s: %s", program(), strings.TrimSpace(string(out)))
}

// browser is the browser of all tests; each has tabs, cookies and storage of its own in it. It is nil where none is installed.
var browser = sync.OnceValues(func() (context.Context, error) {
	if program() == "" {
		return nil, nil
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program()), chromedp.NoSandbox)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	closeBrowser = func() error {
		defer stop()
		return chromedp.Cancel(ctx)
	}
	return ctx, chromedp.Do(ctx)
})

// needsBrowser skips a test where no browser is installed.
func needsBrowser(t *testing.T) context.Context {
	t.Helper()
	ctx, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	if ctx == nil {
		missing.Optional(t, "chromium is missing: apt-get install chromium-headless-shell")
	}
	return ctx
}

// tab is a tab of the browser that has a console open. What the browser complains of in it fails the test.
type tab struct {
	t       *testing.T
	ctx     context.Context
	close   func()
	address string

	mu sync.Mutex
	// complaints are what the browser's console has, without what was expected.
	complaints []string
	expected   []string
}

// newTab opens a tab of nobody's before.
func newTab(t *testing.T, address string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(needsBrowser(t), chromedp.WithNewBrowserContext())
	return tabIn(t, ctx, cancel, address)
}

// beside opens a further tab of the same person.
func (b *tab) beside() *tab {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	return tabIn(b.t, ctx, cancel, b.address)
}

func tabIn(t *testing.T, ctx context.Context, cancel func(), address string) *tab {
	t.Helper()
	b := &tab{t: t, ctx: ctx, close: cancel, address: address}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1440, 900)); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{})
	messages := chromedp.Console(ctx)
	go func() {
		defer close(heard)
		for m, err := range messages {
			if err != nil {
				return // the tab is closed
			}
			b.mu.Lock()
			b.complaints = append(b.complaints, fmt.Sprintf("%s %s: %s (%s)", m.Source, m.Type, m.Text, m.URL))
			b.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		if t.Failed() && ctx.Err() == nil {
			t.Logf("the tab is at %s:\n%s", b.location(), b.main())
		}
		cancel()
		<-heard
		for _, complaint := range b.complaints {
			if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(complaint, part) }) {
				t.Errorf("the browser's console has: %s", complaint)
			}
		}
	})
	return b
}

// do does something in the tab.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// call calls a command of the browser's protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// expects says of which complaints the test knows, by a part of each.
func (b *tab) expects(parts ...string) { b.expected = append(b.expected, parts...) }

// eval evaluates an expression in the tab, also when pages run no scripts.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// open goes to a page of the console, and returns the status with which it comes.
func (b *tab) open(path string) int64 {
	b.t.Helper()
	return b.leads(chromedp.Navigate(b.address + path))
}

// leads does something that leads to another page, and returns the status with which that comes.
func (b *tab) leads(steps ...chromedp.Action[chromedp.Void]) int64 {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	response, err := chromedp.RunResponse(ctx, steps...)
	if err != nil {
		b.t.Fatalf("from %s: %v", b.location(), err)
	}
	return response.Status
}

// click clicks what leads to another page, as soon as that can be clicked: a button that approves waits until the arguments were on screen.
func (b *tab) click(selector string) int64 {
	b.t.Helper()
	return b.leads(chromedp.Click(chromedp.CSS(selector + ":not(:disabled)")))
}

// fill types a text in place of what a field has.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.CSS(selector)), chromedp.Evaluate[chromedp.Void](`document.activeElement.select()`), typing(text))
}

// location is the path of the page.
func (b *tab) location() string { return eval[string](b, `location.pathname + location.search`) }

// main is what a person reads on the page.
func (b *tab) main() string {
	return eval[string](b, `document.querySelector("main")?.innerText ?? ""`)
}

// lacks waits until a text is not on the page any more, without loading it.
func (b *tab) lacks(text string) {
	b.t.Helper()
	await(b.t, fmt.Sprintf("the page does not have %q", text), func() bool { return !strings.Contains(b.main(), text) })
}

// comesTo loads the page until it has a text.
func (b *tab) comesTo(path, text string) {
	b.t.Helper()
	await(b.t, fmt.Sprintf("%s has %q", path, text), func() bool {
		b.open(path)
		return strings.Contains(b.main(), text)
	})
}

// shows waits until the page has a text, without loading it.
func (b *tab) shows(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		await(b.t, fmt.Sprintf("the page has %q", text), func() bool { return strings.Contains(b.main(), text) })
	}
}

// quoted is a text as JavaScript writes it.
func quoted(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can be encoded
	}
	return string(data)
}

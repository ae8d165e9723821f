// Package browser drives the console (docs/console.md) in a real browser, against real processes of agentd. It is a module of its
// own, so that agentd does not depend on what drives the browser.
package browser

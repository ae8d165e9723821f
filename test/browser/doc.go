// Package browser drives the console (docs/console.md) in a real browser, against real processes of agentd. It is a module of its
// own, so that what drives the browser is no dependency of agentd.
package browser

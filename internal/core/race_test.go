//go:build race

package core_test

// The race detector makes a history ten times as slow and has nothing to find in a pure package.
const defaultHistories = "1000"

// Package poll is how tests wait for what nobody tells them.
package poll

import (
	"testing"
	"time"
)

// every is how often it is looked.
const every = 5 * time.Millisecond

// Until looks until holds, and fails the test where it has not come to what is said within a time.
func Until(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for late := time.Now().Add(within); !holds(); <-time.After(every) {
		if time.Now().After(late) {
			t.Fatalf("within %s it never came to this: %s", within, what)
		}
	}
}

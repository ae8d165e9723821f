package main

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"agentd/internal/state/sealed"
)

const (
	// keyLasts is how long workers seal with one key: longer than any of them lives while keys change, so that each knows all that is in use.
	keyLasts = 40 * time.Second
	// mostKeys is how many the driver knows, which reads what all workers have stored.
	mostKeys = 1000
)

// keyring seals with the key of that number, and opens what was sealed with any before it, or with the next: as where keys are made known
// to all before one of them is used.
func keyring(current int) (*sealed.Keyring, error) {
	keys := map[string][]byte{}
	for i := range current + 2 {
		secret := sha256.Sum256(fmt.Append(nil, "key ", i))
		keys[keyName(i)] = secret[:]
	}
	return sealed.NewKeyring(sealed.Options{Current: keyName(current), Keys: keys})
}

func keyName(i int) string { return fmt.Sprint("k", i) }

// rotation is which key workers begin with.
type rotation struct {
	mu  sync.Mutex
	key int
}

// at is the key of who begins at a time after the beginning, and whether it is another one than before.
func (r *rotation) at(elapsed time.Duration) (key int, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := min(max(r.key, int(elapsed/keyLasts)), mostKeys)
	changed, r.key = next > r.key, next
	return next, changed
}

// last is the key that was begun with last.
func (r *rotation) last() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.key
}

// Package memo remembers what can be found out again, up to a size.
package memo

import "sync"

// Memo remembers values. When they would have more than their size together, it forgets all of them: what is needed again comes back, and to look
// one up costs no more than in a map. Safe for concurrent use.
type Memo[K comparable, V any] struct {
	most int

	mu     sync.Mutex
	size   int
	values map[K]sized[V]
}

type sized[V any] struct {
	value V
	size  int
}

// New returns a Memo of values that have at most so much size together, in whatever Keep counts.
func New[K comparable, V any](most int) *Memo[K, V] {
	return &Memo[K, V]{most: most, values: map[K]sized[V]{}}
}

// Get is what was kept last under a key, if it is remembered.
func (m *Memo[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept, ok := m.values[key]
	return kept.value, ok
}

// Keep remembers a value of a size under a key, in place of what was there. One that is larger than all may be is remembered alone.
func (m *Memo[K, V]) Keep(key K, value V, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.size += size - m.values[key].size
	if m.size > m.most {
		clear(m.values)
		m.size = size
	}
	m.values[key] = sized[V]{value, size}
}

// Forget forgets what is under a key.
func (m *Memo[K, V]) Forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.size -= m.values[key].size
	delete(m.values, key)
}

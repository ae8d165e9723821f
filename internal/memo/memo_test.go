package memo_test

import (
	"fmt"
	"sync"
	"testing"

	"agentd/internal/memo"
)

// What is remembered has its size at most, whatever was replaced or forgotten before; beyond, only what was kept last is.
func TestMemo_ForgetsAllWhenItIsFull(t *testing.T) {
	t.Parallel()
	m := memo.New[string, int](10)
	for step, s := range []struct {
		do   func()
		want map[string]int // of a, b, c and d, 0 is that it is forgotten
	}{
		{func() { m.Keep("a", 1, 6) }, map[string]int{"a": 1}},
		{func() { m.Keep("a", 2, 6) }, map[string]int{"a": 2}},
		{func() { m.Keep("b", 3, 4) }, map[string]int{"a": 2, "b": 3}},
		{func() { m.Keep("a", 4, 5) }, map[string]int{"a": 4, "b": 3}},
		{func() { m.Keep("c", 5, 1) }, map[string]int{"a": 4, "b": 3, "c": 5}},
		{func() { m.Forget("a"); m.Forget("a") }, map[string]int{"b": 3, "c": 5}},
		{func() { m.Keep("d", 6, 5) }, map[string]int{"b": 3, "c": 5, "d": 6}},
		{func() { m.Keep("a", 7, 1) }, map[string]int{"a": 7}},
		{func() { m.Keep("b", 8, 50) }, map[string]int{"b": 8}},
		{func() { m.Keep("c", 9, 1) }, map[string]int{"c": 9}},
		{func() { m.Keep("d", 10, 9) }, map[string]int{"c": 9, "d": 10}},
	} {
		s.do()
		for _, key := range []string{"a", "b", "c", "d"} {
			want, known := s.want[key]
			if got, ok := m.Get(key); got != want || ok != known {
				t.Errorf("step %d: %s is %d, %t; want %d, %t", step, key, got, ok, want, known)
			}
		}
	}
}

func TestMemo_IsForSeveralAtOnce(t *testing.T) {
	t.Parallel()
	m := memo.New[string, int](20)
	var using sync.WaitGroup
	for range 4 {
		using.Go(func() {
			for n := range 1000 {
				key := fmt.Sprint(n % 30)
				m.Keep(key, n%30, 1)
				if got, ok := m.Get(key); ok && got != n%30 {
					t.Errorf("%s is %d", key, got)
				}
				m.Forget(fmt.Sprint(n % 7))
			}
		})
	}
	using.Wait()
}

// Package atonce takes several steps at once, until one fails.
package atonce

import (
	"cmp"
	"sync"
	"sync/atomic"
)

// most is how many steps are taken at once. Those that it is for are requests, which the server carries out in less time than they take to get
// there and back.
const most = 32

// Take takes n steps, several at once, and returns what each came to, in order: nothing for those that failed, or were not taken. After
// one that failed no further one begins; the error is the first of those that did, in the order of the steps.
func Take[T any](n int, take func(i int) (T, error)) ([]T, error) {
	made, problems := make([]T, n), make([]error, n)
	var failed atomic.Bool
	var next atomic.Int64
	var taking sync.WaitGroup
	for range min(n, most) {
		taking.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !failed.Load(); i = int(next.Add(1)) - 1 {
				one, err := take(i)
				if err != nil {
					problems[i] = err
					failed.Store(true)
					continue
				}
				made[i] = one
			}
		})
	}
	taking.Wait()
	return made, cmp.Or(problems...)
}

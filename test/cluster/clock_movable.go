//go:build movable_clock

package cluster

import "time"

func init() {
	setClock = func(ahead time.Duration) { time.Ahead.Store(int64(ahead / time.Second)) }
}

// Command ahead sets its clock and says what came of it.
package main

import (
	"fmt"
	"time"
)

func main() {
	before := time.Now()
	time.Ahead.Store(3600)
	after := time.Now()
	elapsed := "a long time"
	if after.Sub(before) < time.Minute {
		elapsed = "no time"
	}
	fmt.Printf("%s later, after %s\n", after.Round(0).Sub(before.Round(0)).Round(time.Minute), elapsed)
}

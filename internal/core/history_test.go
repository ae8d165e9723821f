package core_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/sdk"
)

// TestMain makes the property tests of this package reproducible and thorough by default. For more, and others:
//
//	go test ./internal/core -run TestHistories -rapid.checks=200000 -rapid.seed=42
func TestMain(m *testing.M) {
	flag.Parse()
	defaults := map[string]string{"rapid.checks": "5000", "rapid.seed": "1"}
	flag.Visit(func(f *flag.Flag) { delete(defaults, f.Name) })
	for name, value := range defaults {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestHistories_KeepTheInvariants lets anything happen to runs of any agent; oracle has what must hold.
func TestHistories_KeepTheInvariants(t *testing.T) {
	histories, entries := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		x := explore(t)
		histories++
		entries += len(x.rig.entries)
	})
	t.Logf("%d histories, %d entries", histories, entries)
}

var _ = fmt.Sprint
var _ = core.StatusDone
var _ = sdk.RoleUser

func TestZZ(t *testing.T) {
	runs, calls := transitions{}, transitions{}
	hist := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		x := explore(t)
		runs.add(x.runs)
		calls.add(x.calls)
		hist[fmt.Sprint("reason ", x.rig.state.Reason)]++
		hist[fmt.Sprintf("len %2d", len(x.rig.entries)/5*5)]++
	})
	for _, s := range runs.sorted() {
		fmt.Println("R", s)
	}
	fmt.Println(hist)
	for _, s := range calls.sorted() {
		fmt.Println("C", s)
	}
}

package cluster_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"agentd/test/cluster"
)

func TestMain(m *testing.M) {
	if code, ok := cluster.Serve(); ok { // the test's binary is its servers, too
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

package counts

import (
	"testing"

	"go.uber.org/goleak"

	"agentd/test/killed"
)

func TestMain(m *testing.M) {
	killed.Main()
	goleak.VerifyTestMain(m)
}

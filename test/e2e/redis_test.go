package e2e

import (
	"testing"

	"agentd/internal/runner"
	"agentd/internal/state/redisstore"
)

func openRedis(t *testing.T, url string) runner.Store {
	t.Helper()
	store, _, err := redisstore.Open(t.Context(), url, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

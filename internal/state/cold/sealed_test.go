package cold

import (
	"bytes"
	"errors"
	"testing"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/packed"
	"agentd/internal/state/sealed"
	"agentd/internal/state/storetest"
)

// TestStore_ArchivesStaySealed: an archive says no more than Redis did, and who has the keys reads what was written.
func TestStore_ArchivesStaySealed(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	keys, err := sealed.NewKeyring(sealed.Options{Current: "k", Keys: map[string][]byte{"k": bytes.Repeat([]byte{7}, 32)}})
	check(t, "make keys", err)
	outer := packed.New(sealed.New(s, keys, nil), false)
	whole := written(t, outer, trip, 5)
	archiver, has := state.ArchiverOf(outer)
	if !has {
		t.Fatal("the store has no archives")
	}
	for i, want := range []state.ArchiveStep{state.StepArchived, state.StepThinned} {
		all, err := archiver.Archive(t.Context(), ended(trip, whole), now.Add(Settled*2*(1+1<<i)), 1, false)
		check(t, "archive", errors.Join(err, all[0].Err))
		if all[0].Step != want {
			t.Errorf("step %q, want %q", all[0].Step, want)
		}
	}
	m, err := s.newest(t.Context(), trip)
	check(t, "read archive", err)
	_, content, err := unpack(m.data)
	check(t, "unpack", err)
	for _, secret := range []string{"entry 1 of", "a large content"} {
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("the archive tells %q", secret)
		}
	}
	intact(t, outer, trip, whole)
	whole = append(whole, storetest.AppendN(t, outer, trip, whole[4].Version, 1)...)
	intact(t, outer, trip, whole)
	other, err := sealed.NewKeyring(sealed.Options{})
	check(t, "make keys", err)
	if _, err := packed.New(sealed.New(s, other, nil), false).Entries(t.Context(), trip, runner.Version{}); err == nil {
		t.Error("it opens without the keys")
	}
}

package sealed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/internal/state/natsstore"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/internal/state/sealed"
	"agentd/internal/state/storetest"
	"agentd/sdk"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is a key; equal n, equal key.
func secret(n byte) []byte { return bytes.Repeat([]byte{n}, sealed.KeySize) }

func keyring(t testing.TB, o sealed.Options) *sealed.Keyring {
	t.Helper()
	r, err := sealed.NewKeyring(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// k1 seals with the key k1.
func k1(t testing.TB) *sealed.Keyring {
	return keyring(t, sealed.Options{Current: "k1", Keys: map[string][]byte{"k1": secret(1)}})
}

func TestStore_PassesSuiteInMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) runner.Store { return sealed.New(memory.New(), k1(t), nil) })
}

func TestStore_PassesSuiteInMemoryWhileItTurnsOn(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) runner.Store {
		return sealed.New(memory.New(), keyring(t, sealed.Options{
			Current: "k1", Keys: map[string][]byte{"k1": secret(1)}, AllowPlaintext: true,
		}), nil)
	})
}

func TestStore_PassesSuiteWithoutKeys(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) runner.Store { return sealed.New(memory.New(), keyring(t, sealed.Options{}), nil) })
}

func TestStore_PassesSuiteOnRedis(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	var roots atomic.Int64
	storetest.Run(t, func(t *testing.T) runner.Store {
		s, _, err := redisstore.Open(context.Background(), url, redisstore.Options{Root: fmt.Sprint("root", roots.Add(1))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return sealed.New(s, k1(t), nil)
	})
}

// jetStream opens the journals of an embedded server.
func jetStream(t *testing.T) runner.Store {
	t.Helper()
	conn := brokertest.Connect(t, broker.ConnectOptions{InProcess: brokertest.Server(t, embedded.Options{})})
	s := conn.Subjects()
	_, err := conn.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "AGENTD_RUN", AllowDirect: true, AllowRollup: true,
		Subjects: []string{s.All(wire.KindRun), s.All(wire.KindBlob), s.All(wire.KindSpec)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return natsstore.New(conn.JetStream(), "AGENTD_RUN", s)
}

func TestStore_PassesSuiteOnJetStream(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) runner.Store { return sealed.New(jetStream(t), k1(t), nil) })
}

// halting stops a put of a large content after its last chunks, as a worker that is killed does.
type halting struct {
	runner.Store
	put func(ctx context.Context, run wire.RunKey, digest string, data []byte) error
}

func (h halting) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	return h.put(ctx, run, digest, data)
}

// TestBlob_IsWholeAfterAPutThatBrokeOff: chunks of a first attempt stay, so a second one must seal to the same bytes.
func TestBlob_IsWholeAfterAPutThatBrokeOff(t *testing.T) {
	t.Parallel()
	run, data := wire.NewRunKey("trip"), bytes.Repeat([]byte("large"), 300<<10)
	digest := storetest.Digest(data)
	var attempts [][]byte
	inner := halting{Store: memory.New()}
	inner.put = func(_ context.Context, _ wire.RunKey, _ string, data []byte) error {
		attempts = append(attempts, data)
		return runner.ErrAmbiguous
	}
	for range 2 {
		if err := sealed.New(inner, k1(t), nil).PutBlob(t.Context(), run, digest, data); !errors.Is(err, runner.ErrAmbiguous) {
			t.Fatalf("put: %v", err)
		}
	}
	if !bytes.Equal(attempts[0], attempts[1]) {
		t.Error("two attempts at one blob differ")
	}
	if err := sealed.New(inner, k1(t), nil).PutBlob(t.Context(), wire.NewRunKey("other"), digest, data); err == nil || bytes.Equal(attempts[0], attempts[2]) {
		t.Error("a blob of two runs has the same bytes")
	}
}

const content = "the launch code is 0000"

// filled is an inner store with one run of two entries, a blob and a spec, sealed with k1.
func filled(t *testing.T) (inner *memory.Store, run wire.RunKey, records []runner.Record) {
	t.Helper()
	inner, run = memory.New(), wire.NewRunKey("trip")
	s := sealed.New(inner, k1(t), nil)
	var base runner.Version
	for range 2 {
		r := storetest.NextRecord(base, content)
		var err error
		if base, err = s.Append(t.Context(), run, base, r); err != nil {
			t.Fatal(err)
		}
		r.Version = base
		records = append(records, r)
	}
	digest := storetest.Digest([]byte(content))
	if err := errors.Join(s.PutBlob(t.Context(), run, digest, []byte(content)), s.PutSpec(t.Context(), digest, []byte(content))); err != nil {
		t.Fatal(err)
	}
	return inner, run, records
}

func TestStore_ShowsNothingOfTheContent(t *testing.T) {
	t.Parallel()
	inner, run, _ := filled(t)
	raw, err := inner.Entries(t.Context(), run, runner.Version{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range raw {
		if bytes.Contains(r.Data, []byte("launch")) {
			t.Errorf("entry %d shows its content", r.Rev)
		}
	}
	if bytes.Equal(raw[0].Data[len(raw[0].Data)-len(content):], raw[1].Data[len(raw[1].Data)-len(content):]) {
		t.Error("equal entries are sealed to equal bytes")
	}
	// Who guesses the content learns nothing by looking for its digest.
	digest := storetest.Digest([]byte(content))
	if _, err := inner.Blob(t.Context(), run, digest); !errors.Is(err, runner.ErrNotFound) {
		t.Errorf("the blob is stored under the digest of its content: %v", err)
	}
	if _, err := inner.Spec(t.Context(), digest); !errors.Is(err, runner.ErrNotFound) {
		t.Errorf("the spec is stored under the digest of its content: %v", err)
	}
}

func TestKeys_OldOnesOpenWhatTheySealed(t *testing.T) {
	t.Parallel()
	inner, run, records := filled(t)
	rotated := sealed.New(inner, keyring(t, sealed.Options{
		Current: "k2", Keys: map[string][]byte{"k1": secret(1), "k2": secret(2)},
	}), nil)
	third := storetest.NextRecord(records[1].Version, content)
	v, err := rotated.Append(t.Context(), run, records[1].Version, third)
	if err != nil {
		t.Fatal(err)
	}
	third.Version = v
	storetest.CheckJournal(t, rotated, run, append(records, third))
	digest := storetest.Digest([]byte(content))
	blob, blobErr := rotated.Blob(t.Context(), run, digest)
	spec, specErr := rotated.Spec(t.Context(), digest)
	if string(blob) != content || string(spec) != content {
		t.Errorf("blob %q, %v, spec %q, %v", blob, blobErr, spec, specErr)
	}
	raw, err := inner.Head(t.Context(), run)
	if err != nil || !bytes.Contains(raw.Data[:16], []byte("k2")) {
		t.Errorf("the new entry is not sealed with k2: %q, %v", raw.Data[:16], err)
	}
	// Whoever has not got the new key yet waits.
	_, err = sealed.New(inner, k1(t), nil).Head(t.Context(), run)
	wantFault(t, err, sealed.FaultNoKey, 3, "k2")
}

// wantFault also checks that an operator's fault does not look like a corrupt journal, which is dead-lettered.
func wantFault(t *testing.T, err error, fault sealed.Fault, rev uint64, keyID string) {
	t.Helper()
	e, ok := errors.AsType[*sealed.Error](err)
	if !ok || e.Fault != fault || e.Rev() != rev || e.KeyID != keyID {
		t.Fatalf("got %v, want fault %s of entry %d with key %q", err, fault, rev, keyID)
	}
	if altered := fault == sealed.FaultAltered; errors.Is(err, runner.ErrCorrupt) != altered {
		t.Errorf("%s is corrupt: %v", fault, !altered)
	} else if errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) == altered {
		t.Errorf("%s has the code %s: %v", fault, sdk.CodeConfig, altered)
	}
}

func TestKeys_MissingOrWrongOnesLeaveTheRunAlone(t *testing.T) {
	t.Parallel()
	inner, run, _ := filled(t)
	for fault, keys := range map[sealed.Fault]*sealed.Keyring{
		sealed.FaultNoKey:    keyring(t, sealed.Options{Current: "k2", Keys: map[string][]byte{"k2": secret(2)}}),
		sealed.FaultOtherKey: keyring(t, sealed.Options{Current: "k1", Keys: map[string][]byte{"k1": secret(3)}}),
	} {
		var log bytes.Buffer
		s := sealed.New(inner, keys, slog.New(slog.NewTextHandler(&log, nil)))
		if err := s.Ready(); err != nil {
			t.Errorf("%s: not ready before any run was read: %v", fault, err)
		}
		for range 2 {
			_, err := s.Head(t.Context(), run)
			wantFault(t, err, fault, 2, "k1")
		}
		_, err := s.Entries(t.Context(), run, runner.Version{})
		wantFault(t, err, fault, 1, "k1")
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), `"k1"`) || !strings.Contains(err.Error(), run.String()) {
			t.Errorf("%s: ready says %v", fault, err)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%s: logged %d times:\n%s", fault, n, log.String())
		}
		runs, _, err := s.Runs(t.Context(), "", 10)
		if err != nil || len(runs) != 1 || runs[0].Last.Data != nil || runs[0].Last.Rev != 2 {
			t.Errorf("%s: listed as %+v, %v", fault, runs, err)
		}
	}
	_, err := sealed.New(inner, keyring(t, sealed.Options{}), nil).Head(t.Context(), run)
	wantFault(t, err, sealed.FaultNoKey, 2, "k1")
}

// forge puts records into an inner store as an attacker who can write to it.
func forge(t *testing.T, run wire.RunKey, records ...runner.Record) *memory.Store {
	t.Helper()
	inner := memory.New()
	var base runner.Version
	for _, r := range records {
		var err error
		if base, err = inner.Append(t.Context(), run, base, r); err != nil {
			t.Fatal(err)
		}
	}
	return inner
}

func TestStore_RefusesWhatWasAlteredOrMoved(t *testing.T) {
	t.Parallel()
	inner, run, _ := filled(t)
	raw, err := inner.Entries(t.Context(), run, runner.Version{})
	if err != nil {
		t.Fatal(err)
	}
	first, second := raw[0], raw[1]
	change := func(r runner.Record, at int) runner.Record {
		r.Data = slices.Clone(r.Data)
		if at < 0 {
			at += len(r.Data)
		}
		r.Data[at] ^= 1
		return r
	}
	swapped := second
	swapped.Version = first.Version
	earlier := second
	earlier.Rev = 1
	renamed := first
	renamed.Etag = "other"
	short := first
	short.Data = first.Data[:20]
	empty := first
	empty.Data = first.Data[:6]
	for what, test := range map[string]struct {
		run    wire.RunKey
		record runner.Record
		keyID  string
	}{
		"another run":       {wire.NewRunKey("other"), first, "k1"},
		"another position":  {run, swapped, "k1"},
		"another revision":  {run, earlier, "k1"},
		"another etag":      {run, renamed, "k1"},
		"a changed tag":     {run, change(first, -1), "k1"},
		"a changed text":    {run, change(first, -20), "k1"},
		"a changed nonce":   {run, change(first, 20), "k1"},
		"a cut envelope":    {run, short, ""},
		"an empty envelope": {run, empty, ""},
	} {
		t.Run(what, func(t *testing.T) {
			s := sealed.New(forge(t, test.run, test.record), k1(t), nil)
			_, err := s.Head(t.Context(), test.run)
			wantFault(t, err, sealed.FaultAltered, 1, test.keyID)
			_, err = s.Entries(t.Context(), test.run, runner.Version{})
			wantFault(t, err, sealed.FaultAltered, 1, test.keyID)
			if err := s.Ready(); err != nil {
				t.Errorf("one altered run makes the worker unready: %v", err)
			}
		})
	}
}

// TestContents_OpenOnlyWhereTheyBelong moves a sealed blob to the names of others.
func TestContents_OpenOnlyWhereTheyBelong(t *testing.T) {
	t.Parallel()
	inner, run, _ := filled(t)
	recorded := &recording{Store: inner}
	s := sealed.New(recorded, k1(t), nil)
	ctx, digest := t.Context(), storetest.Digest([]byte(content))
	if err := s.PutBlob(ctx, run, digest, []byte(content)); err != nil {
		t.Fatal(err)
	}
	envelope := recorded.data
	other := storetest.Digest([]byte("other"))
	if err := s.PutBlob(ctx, run, other, []byte("other")); err != nil {
		t.Fatal(err)
	}
	if err := inner.PutBlob(ctx, run, recorded.name, envelope); err != nil {
		t.Fatal(err)
	}
	_, err := s.Blob(ctx, run, other)
	wantFault(t, err, sealed.FaultAltered, 0, "k1")
	if err := inner.PutBlob(ctx, run, recorded.name, []byte("other")); err != nil {
		t.Fatal(err)
	}
	_, err = s.Blob(ctx, run, other)
	wantFault(t, err, sealed.FaultAltered, 0, "")
}

// recording remembers the last blob that was put.
type recording struct {
	runner.Store
	name string
	data []byte
}

func (r *recording) PutBlob(ctx context.Context, run wire.RunKey, name string, data []byte) error {
	r.name, r.data = name, data
	return r.Store.PutBlob(ctx, run, name, data)
}

func TestPlaintext_IsReadOnlyWhereAllowedAndNeverAfterWhatIsSealed(t *testing.T) {
	t.Parallel()
	ctx, run := t.Context(), wire.NewRunKey("trip")
	inner := memory.New()
	records := storetest.AppendN(t, inner, run, runner.Version{}, 2)
	digest := storetest.Digest([]byte(content))
	if err := errors.Join(inner.PutBlob(ctx, run, digest, []byte(content)), inner.PutSpec(ctx, digest, []byte("forged"))); err != nil {
		t.Fatal(err)
	}

	strict := sealed.New(inner, k1(t), nil)
	_, err := strict.Head(ctx, run)
	wantFault(t, err, sealed.FaultPlaintext, 2, "")
	_, err = strict.Entries(ctx, run, runner.Version{})
	wantFault(t, err, sealed.FaultPlaintext, 1, "")
	if _, err := strict.Blob(ctx, run, digest); !errors.Is(err, runner.ErrNotFound) {
		t.Errorf("blob in plaintext: %v", err)
	}
	if runs, _, err := strict.Runs(ctx, "", 10); err != nil || len(runs) != 1 || runs[0].Last.Data != nil {
		t.Errorf("listed as %+v, %v", runs, err)
	}
	if err := strict.Ready(); err == nil {
		t.Error("a worker that waits for allow_plaintext is ready")
	}

	turning := sealed.New(inner, keyring(t, sealed.Options{
		Current: "k1", Keys: map[string][]byte{"k1": secret(1)}, AllowPlaintext: true,
	}), nil)
	storetest.CheckJournal(t, turning, run, records)
	if blob, err := turning.Blob(ctx, run, digest); string(blob) != content {
		t.Errorf("blob in plaintext: %q, %v", blob, err)
	}
	if _, err := turning.Spec(ctx, digest); !errors.Is(err, runner.ErrCorrupt) {
		t.Errorf("a spec in plaintext with another content: %v", err)
	}
	records = append(records, storetest.AppendN(t, turning, run, records[1].Version, 1)...)
	storetest.CheckJournal(t, turning, run, records)

	// From here on plaintext is an attack.
	forged := storetest.AppendN(t, inner, run, records[2].Version, 1)
	_, err = turning.Head(ctx, run)
	wantFault(t, err, sealed.FaultAltered, 4, "")
	_, err = turning.Entries(ctx, run, runner.Version{})
	wantFault(t, err, sealed.FaultAltered, 4, "")
	_, err = turning.Entries(ctx, run, records[2].Version)
	wantFault(t, err, sealed.FaultAltered, 4, "")
	if runs, _, err := turning.Runs(ctx, "", 10); err != nil || runs[0].Last.Data != nil {
		t.Errorf("the forged entry %v is listed: %+v, %v", forged[0].Version, runs, err)
	}
}

func TestNewKeyring_ListsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := sealed.NewKeyring(sealed.Options{
		Current: "k9", Keys: map[string][]byte{"k1": secret(1)[1:], "no spaces": secret(2), strings.Repeat("k", 33): secret(3)},
	})
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{`"k1": config: want 32 bytes in base64, got 31 bytes`, `"no spaces"`, strings.Repeat("k", 33), `"k9" is not among`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if _, err := sealed.NewKeyring(sealed.Options{Keys: map[string][]byte{"k1": secret(1)}}); err == nil {
		t.Error("keys without a current one are accepted")
	}
}

func TestParseKey(t *testing.T) {
	t.Parallel()
	text := sealed.NewKey()
	if text == sealed.NewKey() {
		t.Error("two new keys are equal")
	}
	key, err := sealed.ParseKey(text)
	if err != nil || len(key) != sealed.KeySize {
		t.Errorf("new key: %d bytes, %v", len(key), err)
	}
	if _, err := sealed.ParseKey(strings.TrimRight(text, "=")); err != nil {
		t.Errorf("without padding: %v", err)
	}
	for _, text := range []string{"", "short", strings.Repeat("!", 44), text + text} {
		_, err := sealed.ParseKey(text)
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("key %q: %v", text, err)
		}
	}
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, "memory,plain", func(*testing.B) runner.Store { return memory.New() })
	storetest.Benchmark(b, "memory,sealed", func(b *testing.B) runner.Store { return sealed.New(memory.New(), k1(b), nil) })
}

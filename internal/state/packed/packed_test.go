package packed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/memory"
	"agentd/internal/state/natsstore"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/internal/state/sealed"
	"agentd/internal/state/storetest"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// over packs what inner keeps; with a key it is sealed as well.
func over(t testing.TB, inner runner.Store, key bool) Store {
	t.Helper()
	o := sealed.Options{}
	if key {
		o = sealed.Options{Current: "k1", Keys: map[string][]byte{"k1": bytes.Repeat([]byte{1}, 32)}}
	}
	keys, err := sealed.NewKeyring(o)
	if err != nil {
		t.Fatal(err)
	}
	return New(sealed.New(inner, keys, nil), false)
}

func TestStore_PassesSuiteInMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) runner.Store { return over(t, memory.New(), false) })
}

func TestStore_PassesSuiteSealed(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) runner.Store { return over(t, memory.New(), true) })
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
		return over(t, s, false)
	})
}

func TestStore_PassesSuiteOnJetStream(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) runner.Store { return over(t, jetStream(t), false) })
}

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

var run = wire.NewRunKey("trip")

// journals are those that were recorded, each as its entries' bytes.
func journals(t testing.TB) map[string][][]byte {
	t.Helper()
	files, err := filepath.Glob("../../../test/replay/testdata/v*/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no journal is recorded: %v", err)
	}
	read := map[string][][]byte{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		read[file] = bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	}
	return read
}

// appended writes the entries of a journal.
func appended(t testing.TB, s runner.Store, entries ...[]byte) {
	t.Helper()
	var base runner.Version
	for _, data := range entries {
		var err error
		next := storetest.NextRecord(base, string(data))
		if base, err = s.Append(t.Context(), run, base, next); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever reads gets every journal that was ever recorded byte for byte, by all ways to read, and what is stored is less than half.
func TestJournals_AreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	written, kept := 0, 0
	for file, entries := range journals(t) {
		inner := memory.New()
		s := over(t, inner, false)
		appended(t, s, entries...)
		check := func(how string, records []runner.Record, err error, want ...[]byte) {
			t.Helper()
			var got [][]byte
			for _, r := range records {
				got = append(got, r.Data)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Errorf("%s of %s: %v (-want +got):\n%s", how, file, err, diff)
			}
		}
		last := entries[len(entries)-1]
		records, err := s.Entries(t.Context(), run, runner.Version{})
		check("entries", records, err, entries...)
		records, err = s.Part(t.Context(), run, 2, 2)
		check("part", records, err, entries[1:min(3, len(entries))]...)
		head, err := s.Head(t.Context(), run)
		check("head", []runner.Record{head}, err, last)
		runs, _, err := s.Runs(t.Context(), "", 1)
		if err != nil {
			t.Fatal(err)
		}
		check("list", []runner.Record{runs[0].Last}, err, last)
		stored, err := inner.Entries(t.Context(), run, runner.Version{})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range stored {
			written, kept = written+len(entries[i]), kept+len(r.Data)
		}
	}
	t.Logf("%d bytes are kept of %d", kept, written)
	if kept > written/2 {
		t.Errorf("%d bytes are kept of %d, more than a half", kept, written)
	}
}

// Older workers take entries of later layouts for what they cannot go on with, so every entry that is stored must look like one: small
// ones too, or they would go on until they meet a large one.
func TestStored_IsOfALaterLayoutToWhoeverCannotReadIt(t *testing.T) {
	t.Parallel()
	recorded := journals(t)
	recorded["small"] = [][]byte{[]byte(`{"v":1,"rev":1}`), bytes.Repeat([]byte{'1'}, worthwhile)}
	for file, entries := range recorded {
		for i, plain := range entries {
			data := pack(plain)
			if err := new(core.Entry).Decode(data); !errors.Is(err, core.ErrLaterLayout) {
				t.Errorf("entry %d of %s: %v", i+1, file, err)
			}
			if !json.Valid(data) {
				t.Errorf("entry %d of %s is stored as %.200s, which is not JSON", i+1, file, data)
			}
		}
	}
}

func TestStore_SealsWhatIsPacked(t *testing.T) {
	t.Parallel()
	entry := bytes.Repeat([]byte("a journal says the same again and again; "), 200)
	inner := memory.New()
	appended(t, over(t, inner, true), entry)
	stored, err := inner.Head(t.Context(), run)
	if err != nil || len(stored.Data) > len(entry)/10 {
		t.Errorf("%d bytes are kept of %d, %v", len(stored.Data), len(entry), err)
	}
}

func TestStore_KeepsEntriesPlainIfAsked(t *testing.T) {
	t.Parallel()
	inner := memory.New()
	packs := over(t, inner, false)
	plainly := New(packs.Store, true)
	entries := [][]byte{bytes.Repeat([]byte("one "), 500), bytes.Repeat([]byte("two "), 500)}
	appended(t, packs, entries[0])
	head, err := plainly.Head(t.Context(), run)
	if err != nil || !bytes.Equal(head.Data, entries[0]) {
		t.Fatalf("it reads %.100s, %v of what is packed", head.Data, err)
	}
	if _, err := plainly.Append(t.Context(), run, head.Version, storetest.NextRecord(head.Version, string(entries[1]))); err != nil {
		t.Fatal(err)
	}
	if stored, err := inner.Head(t.Context(), run); err != nil || !bytes.Equal(stored.Data, entries[1]) {
		t.Errorf("%.100s, %v is stored, want the entry as it is", stored.Data, err)
	}
}

// deflatedZeros is how a text of that many zeros is packed.
func deflatedZeros(t *testing.T, size int) []byte {
	t.Helper()
	data := pack(bytes.Repeat([]byte("0"), size))
	if !bytes.HasPrefix(data, deflates) {
		t.Fatalf("%d zeros are stored as %.100s", size, data)
	}
	return data
}

func TestUnpack_RefusesWhatWasNotPacked(t *testing.T) {
	t.Parallel()
	whole := string(deflatedZeros(t, 5000))
	inner, _ := strings.CutSuffix(strings.TrimPrefix(whole, string(deflates)), string(deflated))
	for name, data := range map[string]string{
		"a bomb":              string(deflatedZeros(t, 100<<20)),
		"a byte too many":     string(deflatedZeros(t, state.MaxEntry+1)),
		"cut off":             whole[:len(whole)-2],
		"half of it":          string(deflates) + inner[:len(inner)/2] + string(deflated),
		"no base64":           string(deflates) + "!" + inner + string(deflated),
		"something behind it": string(deflates) + inner + "AAAA" + string(deflated),
		"an entry cut off":    `{"v":8,"entry":{"v":1}, `,
	} {
		if plain, err := unpack([]byte(data)); !errors.Is(err, runner.ErrCorrupt) {
			t.Errorf("%s: %d bytes, %v", name, len(plain), err)
		}
	}
	if plain, err := unpack(deflatedZeros(t, state.MaxEntry)); err != nil || len(plain) != state.MaxEntry {
		t.Errorf("the largest entry: %d bytes, %v", len(plain), err)
	}
}

// A few KiB must not have a worker hold what they stand for. Nothing else runs meanwhile.
func TestUnpack_ReadsNoMoreThanAnEntry(t *testing.T) {
	bomb := deflatedZeros(t, 100<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := unpack(bomb); !errors.Is(err, runner.ErrCorrupt) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8*state.MaxEntry {
		t.Errorf("%d bytes took %d", len(bomb), took)
	}
}

// A run that is not whole hides no other in a list, and is corrupt for whoever reads it.
func TestStore_ListsWhatIsNotWhole(t *testing.T) {
	t.Parallel()
	inner := memory.New()
	appended(t, inner, []byte(`{"v":8,"deflate":"AAAA"}`))
	s := over(t, inner, false)
	if runs, _, err := s.Runs(t.Context(), "", 10); err != nil || len(runs) != 1 {
		t.Errorf("%d runs are listed, %v", len(runs), err)
	}
	if _, err := s.Head(t.Context(), run); !errors.Is(err, runner.ErrCorrupt) {
		t.Errorf("its head: %v", err)
	}
}

// Entries that do not become smaller fit into every store, up to the largest, and one that is too large is refused before it is packed.
func TestStore_TakesEntriesUpToTheLargest(t *testing.T) {
	t.Parallel()
	noise := make([]byte, state.MaxEntry+1)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(random.UintN(256))
	}
	s := over(t, memory.New(), true)
	var base runner.Version
	for _, size := range []int{state.MaxEntry, state.MaxEntry - 1, state.MaxEntry - 16, state.MaxEntry - 17, worthwhile + 1, worthwhile} {
		v, err := s.Append(t.Context(), run, base, storetest.NextRecord(base, string(noise[:size])))
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if head, err := s.Head(t.Context(), run); err != nil || !bytes.Equal(head.Data, noise[:size]) {
			t.Fatalf("%d bytes are read as %d, %v", size, len(head.Data), err)
		}
		base = v
	}
	zeros := strings.Repeat("0", state.MaxEntry+1)
	if _, err := s.Append(t.Context(), run, base, storetest.NextRecord(base, zeros)); sdk.AsError(err).Code != sdk.CodeTooLarge {
		t.Errorf("one byte too many: %v", err)
	}
}

// What is stored is read by any later version: neither form nor dictionary may change.
func TestForm_IsFixed(t *testing.T) {
	t.Parallel()
	if digest := core.Digest(dictionary); digest != "ef82c3977783bf416b5206792a5388cc6acc908149ae6a79980e90bd173c4a69" {
		t.Errorf("the dictionary is another one: %s", digest)
	}
	const entry = `{"v":1,"rev":2,"etag":"6b86b273ff34fce19d6b804eff","at":1790000000800,"kind":"replied"}`
	for stored, want := range map[string]string{
		`{"v":8,"deflate":"Q2nsGcEbe2ZJFmZJRubGaWnGJmnJqYaWKUARAxNgmlGCFTiWBhBgYWCgg55NagE"}`: entry,
		`{"v":8,"entry":` + entry + `}`: entry,
		entry:                           entry,
	} {
		if plain, err := unpack([]byte(stored)); err != nil || string(plain) != want {
			t.Errorf("%s is read as %s, %v", stored, plain, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte(`{"v":8,"deflate":"AAAA"}`))
	f.Add([]byte(`{"v":8,"entry":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if plain, err := unpack(data); err == nil && len(plain) > max(state.MaxEntry, len(data)) {
			t.Errorf("%d bytes stand for %d", len(data), len(plain))
		}
		if plain, err := unpack(pack(data)); len(data) <= state.MaxEntry && !bytes.HasPrefix(data, []byte(`{"v":8,`)) && (err != nil || !bytes.Equal(plain, data)) {
			t.Errorf("%q is read as %q, %v", data, plain, err)
		}
	})
}

func BenchmarkStore(b *testing.B) {
	var entries [][]byte
	for _, journal := range journals(b) {
		entries = append(entries, journal...)
	}
	b.Run("Pack", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			pack(entries[i%len(entries)])
		}
	})
	var packed [][]byte
	for _, e := range entries {
		packed = append(packed, pack(e))
	}
	b.Run("Unpack", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := unpack(packed[i%len(packed)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Decode", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := core.DecodeEntry(entries[i%len(entries)]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package reconcile_test

import (
	"flag"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
	"agentd/test/killed"
	"agentd/test/setback"
)

var seed = flag.Uint64("reconcile.seed", 0, "what decides when servers are killed, and what is left of their files; 0 is another one each time")

// byChance is the chance of one test, by a seed that it logs.
func byChance(t *testing.T) *rand.Rand {
	t.Helper()
	of := *seed
	if of == 0 {
		of = rand.Uint64()
	}
	t.Logf("-reconcile.seed=%d", of)
	return rand.New(rand.NewPCG(of, 0))
}

// taken are the files of the streams.
func (r *rig) taken(server *killed.Server) map[streams.Zone]setback.Files {
	r.t.Helper()
	all := map[streams.Zone]setback.Files{}
	for _, z := range r.setBack() {
		files, err := setback.Take(server.Dir, z)
		r.check("copy the files", err)
		all[z] = files
	}
	return all
}

// put has the streams have files. The server must not run.
func (r *rig) put(server *killed.Server, all map[streams.Zone]setback.Files) {
	r.t.Helper()
	for z, files := range all {
		r.check("put files in their place", setback.Put(server.Dir, z, files))
	}
}

// lastBlock is the file with the messages that were stored last.
func lastBlock(files setback.Files) string {
	last, number := "", 0
	for name := range files {
		base := filepath.Base(name)
		if n, err := strconv.Atoi(strings.TrimSuffix(base, ".blk")); strings.HasSuffix(base, ".blk") && err == nil && n > number {
			last, number = name, n
		}
	}
	return last
}

const page = 4096 // of a disk's cache

// index is what a server has written last of what blocks have.
var index = filepath.Join("msgs", "index.db")

// withoutEnd cuts the last block.
func withoutEnd(chance *rand.Rand, files setback.Files) {
	if name := lastBlock(files); len(files[name]) > 0 {
		files[name] = files[name][:chance.IntN(len(files[name]))]
	}
}

// hole clears a page of the last block.
func hole(chance *rand.Rand, files setback.Files) {
	if name := lastBlock(files); len(files[name]) > 0 {
		from := chance.IntN(len(files[name])) / page * page
		clear(files[name][from:min(from+page, len(files[name]))])
	}
}

// withoutPower are what a machine that loses its power may leave of files that were written and not synced. Of a server that is stopped there is
// the index that it writes then, and each two minutes.
var withoutPower = map[string]struct {
	stopped bool
	leave   func(chance *rand.Rand, earlier, files setback.Files)
}{
	"all as it was a moment ago": {false, func(*rand.Rand, setback.Files, setback.Files) {}},
	"without the end of a block": {false, func(chance *rand.Rand, _, files setback.Files) { withoutEnd(chance, files) }},
	"without the end of a block and without the index": {false, func(chance *rand.Rand, _, files setback.Files) {
		delete(files, index)
		withoutEnd(chance, files)
	}},
	"a hole in a block": {false, func(chance *rand.Rand, _, files setback.Files) {
		delete(files, index)
		hole(chance, files)
	}},
	"a hole in a block and an index of all": {true, func(chance *rand.Rand, _, files setback.Files) { hole(chance, files) }},
	"consumers older than their stream": {false, func(_ *rand.Rand, earlier, files setback.Files) {
		for name, data := range earlier {
			if strings.HasPrefix(name, "obs") {
				files[name] = data
			}
		}
	}},
	"a stream older than its consumers": {false, func(_ *rand.Rand, earlier, files setback.Files) {
		for name := range files {
			if strings.HasPrefix(name, "msgs") {
				delete(files, name)
			}
		}
		for name, data := range earlier {
			if strings.HasPrefix(name, "msgs") {
				files[name] = data
			}
		}
	}},
}

// Whatever a machine that loses its power leaves of the files of these streams, every run ends, once, as it would have.
func TestAfterRestarts_WithoutPower(t *testing.T) {
	const runs = 20
	t.Parallel()
	plans := []string{"add add add", "add clerk:add add", "both:add", "clerk:clerk", "say"}
	for name, of := range withoutPower {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := killed.New(t)
			server.Start()
			r := startOn(t, broker.ConnectOptions{URL: server.URL(), Wait: true}, func(r *rig) { r.interval = time.Hour })
			c := &countingService{calls: map[string]int{}}
			c.serve(r, server.URL())
			r.done(r.begin("say")) // the streams have blocks
			chance := byChance(t)
			for range *rounds {
				var begun []begun
				for i := range runs {
					begun = append(begun, r.begin(plans[i%len(plans)]))
				}
				moment := func() { <-time.After(time.Duration(chance.IntN(300)) * time.Millisecond) }
				moment()
				earlier := r.taken(server)
				moment()
				left := r.taken(server)
				moment()
				if of.stopped {
					server.Stop()
					left = r.taken(server)
				} else {
					server.Kill()
				}
				for _, z := range slices.Sorted(maps.Keys(left)) { // chance is asked in one order
					of.leave(chance, earlier[z], left[z])
				}
				r.put(server, left)
				server.Start()
				for _, b := range begun {
					if code := r.doneWithin(b, 3*patience); code != "" {
						t.Errorf("%s ended with %s", b.subject, code)
					}
				}
			}
			for subject, n := range r.messages(streams.Done, wire.KindDone) {
				if n != 1 {
					t.Errorf("%d terminal events are on %s", n, subject)
				}
			}
			calls, twice := c.counted()
			t.Logf("%d runs, %d calls, %d of them made more than once", *rounds*runs, calls, twice)
		})
	}
}

// A note that a server has lost, though not that there is one, is written again, and once: all are told the same.
func TestFirstLasting_OfANoteThatIsLost(t *testing.T) {
	t.Parallel()
	server := killed.New(t)
	server.Start()
	r := startOn(t, broker.ConnectOptions{URL: server.URL(), Wait: true}, func(r *rig) { r.interval = time.Hour })
	r.stop()
	first := func(note string) string {
		noted, err := r.conn.FirstLasting(r.context(), "who", []byte(note))
		r.check("note", err)
		return string(noted)
	}
	if noted := first("one"); noted != "one" {
		t.Fatalf("%s is noted, want one", noted)
	}
	r.check("note more than a page", r.conn.SetNote(r.context(), "other", make([]byte, 2*page)))
	server.Stop()
	left := r.taken(server)
	block := left[streams.Timer][lastBlock(left[streams.Timer])]
	clear(block[:len(block)-2*page])
	r.put(server, left)
	server.Start()
	for _, note := range []string{"two", "three"} {
		if noted := first(note); noted != "two" {
			t.Errorf("%s is noted, want two", noted)
		}
	}
}

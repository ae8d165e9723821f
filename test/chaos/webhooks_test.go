package main

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	asks "agentd/internal/requests"
)

// The webhook must know of what was shown for long while the server was there, whatever else was away, and of nothing else.
func TestWebhook_MustBeToldOfWhatWasOpenForLong(t *testing.T) {
	t.Parallel()
	at := func(s float64) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s * float64(time.Second))) }
	h := &webhooks{
		told: map[string]bool{"long, told": true, "never shown": true},
		shown: map[string]shown{
			"long, told": {at(100), at(103)}, "long": {at(100), at(102)}, "short": {at(100), at(101.9)}, "still open": {at(100), time.Time{}},
			"redis away": {at(110), at(113)}, "nats killed": {at(120), at(123)}, "nats back 5 s ago": {at(126), at(129)}, "nats back 7 s ago": {at(128), at(131)},
			"nats killed when it was told": {at(117), at(125)}, "nats slow": {at(142), at(145)},
			"leader elected": {at(165), at(168)}, "leader back": {at(171), at(174)},
		},
		away: []hurt{{"nats", at(140), at(141.5)}},
	}
	w := &world{webhooks: h, nats: &server{name: "nats"}}
	w.hurts.absences = []hurt{{"redis", at(110), at(112)}, {"nats", at(119.5), at(121)}}
	w.hurts.list = []hurt{{"SIGKILL to a leader", at(150), at(155)}}
	judged := func(w *world) *record {
		e := &evidence{world: w, record: &record{counts: map[string]int{}}}
		e.hookTold()
		return e.record
	}
	got := judged(w)
	want := []string{`of 6 requests that were open for 2s and more the webhook was not told of 5: ` +
		`["leader back" "long" "nats back 7 s ago" "nats killed when it was told" "redis away"]`}
	if !slices.Equal(got.violations, want) {
		t.Errorf("violated: %q, want %q", got.violations, want)
	}
	if n := got.counts[hadToBeTold]; n != 6 {
		t.Errorf("it had to be told of %d requests, want 6", n)
	}
	h.told["leader back"], h.told["long"] = true, true
	if got := judged(w); len(got.violations) > 0 || got.counts[notTold] != 3 {
		t.Errorf("violated though half was told: %q, %d not in time, want 3", got.violations, got.counts[notTold])
	}
	h.told = map[string]bool{}
	w.setsBack = true
	if got := judged(w); len(got.violations) > 0 {
		t.Errorf("violated where the server forgets: %q", got.violations)
	}
}

// What has expired is over, even if the desk removes it later; and who comes back to it has seen it once.
func TestWebhook_SeesForHowLongRequestsAreShown(t *testing.T) {
	t.Parallel()
	at := func(ms int64) time.Time { return time.UnixMilli(1_000_000 + ms) }
	h := &webhooks{shown: map[string]shown{}, log: slog.New(slog.DiscardHandler)}
	expires := asks.Item{ID: "a", Expires: at(3000).UnixMilli()}
	for _, c := range []struct {
		kind asks.ChangeKind
		item asks.Item
		now  int64
	}{
		{asks.ChangeAdded, expires, 500},
		{asks.ChangeAdded, asks.Item{ID: "b"}, 600},
		{asks.ChangeAdded, asks.Item{ID: "c"}, 700},
		{asks.ChangeDecided, expires, 900},
		{asks.ChangeRemoved, expires, 3400},
		{asks.ChangeRemoved, asks.Item{ID: "b"}, 1600},
		{asks.ChangeAdded, asks.Item{ID: "b"}, 1700},
		{asks.ChangeRemoved, asks.Item{ID: "b"}, 9000},
		{asks.ChangeRemoved, asks.Item{ID: "unseen"}, 9000},
	} {
		h.see(asks.Change{Kind: c.kind, Item: c.item}, at(c.now))
	}
	want := map[string]shown{"a": {at(500), at(3000)}, "b": {at(600), at(1600)}, "c": {from: at(700)}}
	if len(h.shown) != len(want) {
		t.Errorf("shown: %d requests, want %d", len(h.shown), len(want))
	}
	for id, w := range want {
		if got := h.shown[id]; !got.from.Equal(w.from) || !got.until.Equal(w.until) {
			t.Errorf("%s was shown from %s to %s, want from %s to %s", id, got.from, got.until, w.from, w.until)
		}
	}
}

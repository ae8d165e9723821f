package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/state"
	"agentd/sdk"
)

// home is the store that the runs of a root are kept in, as it is noted on the broker. What another store lacks is not lost.
type home struct {
	// Kind is that of OpenedStore.
	Kind string `json:"kind"`
	// ID is the mark that the store has, for ever, under a name of its own: a store that is set back still has it.
	ID string `json:"id"`
	// Since is when that was noted, in Unix milliseconds.
	Since int64 `json:"since"`
}

// noteOfHome names the note; its subject is among those of leases.
const noteOfHome = "store"

// ErrOtherStore is the cause of an error that says that a store is not the one that runs are kept in. Its text is what to do where the
// configuration is right.
var ErrOtherStore = errors.New("if the store that has the runs is lost for good: agentd reconcile --store-lost")

func other(format string, args ...any) error {
	return sdk.Errorf(sdk.CodeConfig, format, args...).WithCause(ErrOtherStore)
}

// settings say what has runs kept in a kind of store.
var settings = map[string]string{kindJetStream: "unset REDIS_URL and redis.url", kindRedis: "set REDIS_URL"}

func (h *home) markName() string { return "store_" + h.ID }

// homeOf is what is noted; nil is that nobody has said which store it is.
func homeOf(ctx context.Context, conn *broker.Conn) (*home, error) {
	data, err := conn.Lasting(ctx, noteOfHome)
	if err != nil {
		return nil, fmt.Errorf("read which store runs are kept in: %w", err)
	}
	return decodeHome(data)
}

func decodeHome(data []byte) (*home, error) {
	if data == nil {
		return nil, nil
	}
	var h home
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, fmt.Errorf("read which store runs are kept in: %w", err)
	}
	return &h, nil
}

// check returns nil for the store that this is, or why it is another; for nil any is right.
func (h *home) check(ctx context.Context, store state.Store, kind string) error {
	switch {
	case h == nil:
		return nil
	case h.Kind != kind:
		return other("runs are kept in %s, and this is %s: %s", h.Kind, kind, settings[h.Kind])
	}
	marked, err := store.Marked(ctx, h.markName(), h.ID)
	if err != nil || marked {
		return err
	}
	since := time.UnixMilli(h.Since).UTC().Format(time.RFC3339)
	if kind == kindRedis {
		return other("this Redis is not the store that runs are kept in (since %s), or it was emptied: look at REDIS_URL and its database", since)
	}
	return other("the journals in this JetStream are not those of the runs (since %s): their stream was emptied or made anew; set it back to a copy", since)
}

// lacking returns nil for a store that may be the one that runs are kept in where nobody has said which one is, or why it is not: it has no run,
// and some had ended. What stays of a run that has ended outlives its terminal event.
func lacking(ctx context.Context, conn *broker.Conn, store state.Store, kind string) error {
	ended, err := conn.ZoneState(ctx, streams.Done)
	if err != nil {
		return fmt.Errorf("look whether runs have ended: %w", err)
	}
	if ended.Messages == 0 {
		return nil
	}
	runs, _, err := store.Runs(ctx, "", 1)
	if err != nil || len(runs) > 0 {
		return err
	}
	if kind == kindRedis {
		return other("runs have ended here, and this Redis has none: look at REDIS_URL and its database")
	}
	return other("runs have ended here, and this JetStream has none: set REDIS_URL, or set the stream of journals back to a copy")
}

// marked is a home whose mark a store has got, and its replicas where they are waited for: what is written afterwards confirms what came before.
// A replica that took over without the mark would be another store, whatever runs it has.
func marked(ctx context.Context, conn *broker.Conn, store state.Store, kind string) (note []byte, err error) {
	h := home{Kind: kind, ID: rand.Text(), Since: conn.Now()}
	if err := store.Mark(ctx, h.markName(), h.ID); err != nil {
		return nil, err
	}
	if err := store.Writable(ctx); err != nil {
		return nil, fmt.Errorf("see whether the store has its mark for good: %w", err)
	}
	return json.Marshal(h)
}

// settleIn has runs kept in a store from now on if it is not said where they are, and returns nil if they are kept there. Of several
// who do so at once, each with a store, one decides. The mark comes before the note: whoever dies between the two has said nothing.
func settleIn(ctx context.Context, conn *broker.Conn, store state.Store, kind string) error {
	h, err := homeOf(ctx, conn)
	if err != nil || h != nil {
		return errors.Join(err, h.check(ctx, store, kind))
	}
	if err := lacking(ctx, conn, store, kind); err != nil {
		return err
	}
	note, err := marked(ctx, conn, store, kind)
	if err != nil {
		return err
	}
	if note, err = conn.FirstLasting(ctx, noteOfHome, note); err != nil {
		return fmt.Errorf("note which store runs are kept in: %w", err)
	}
	if h, err = decodeHome(note); err != nil {
		return err
	}
	return h.check(ctx, store, kind)
}

// MoveTo has runs kept in a store from now on, whatever store has them: that one is lost. Passes then end what the store does not have.
func MoveTo(ctx context.Context, conn *broker.Conn, store state.Store) error {
	kind := kindOf(store)
	h, err := homeOf(ctx, conn)
	if err == nil && h != nil {
		if err = h.check(ctx, store, kind); err == nil {
			return nil
		}
	}
	if err != nil && !errors.Is(err, ErrOtherStore) {
		return err
	}
	note, err := marked(ctx, conn, store, kind)
	if err != nil {
		return err
	}
	if err := conn.SetLasting(ctx, noteOfHome, note); err != nil {
		return fmt.Errorf("note which store runs are kept in: %w", err)
	}
	return nil
}

// compared returns nil for the store that runs are kept in, and for whoever may not know which one that is.
func compared(ctx context.Context, conn *broker.Conn, store OpenedStore) error {
	var h *home
	err := conn.Permitted(ctx, func(ctx context.Context) (err error) {
		h, err = homeOf(ctx, conn)
		return err
	})
	if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		return nil
	}
	return errors.Join(err, h.check(ctx, store, store.Kind()))
}

// fits returns nil for the store that runs are kept in, or that may be when that is not known: what workers take.
func fits(ctx context.Context, conn *broker.Conn, store state.Store, kind string) error {
	h, err := homeOf(ctx, conn)
	if err != nil {
		return err
	}
	if h == nil {
		return lacking(ctx, conn, store, kind)
	}
	return h.check(ctx, store, kind)
}

// comparing returns nil when the worker's store fits.
func (w *Worker) comparing(ctx context.Context) error {
	store, ok := w.store.(state.Store)
	if !ok {
		return nil
	}
	return fits(ctx, w.Conn, store, kindOf(store))
}

// settling is comparing that has runs kept in the worker's store from now on when that is not known.
func (w *Worker) settling(ctx context.Context) error {
	store, ok := w.store.(state.Store)
	if !ok {
		return nil
	}
	return settleIn(ctx, w.Conn, store, kindOf(store))
}

// kindOf is the kind of a store as OpenedStore says it; any other is taken for one in JetStream.
func kindOf(store any) string {
	if k, ok := store.(interface{ Kind() string }); ok {
		return k.Kind()
	}
	return kindJetStream
}

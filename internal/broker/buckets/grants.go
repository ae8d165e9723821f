package buckets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// keptCalls bounds the reservations that are remembered under a grant without a limit of uses.
const keptCalls = 128

// Grants keeps grants wider than a run in the connection's JetStream. It implements approval.GrantStore; every change is a
// compare-and-set of one key, so it may be repeated.
type Grants struct{ conn *broker.Conn }

// GrantsOf are those of the connection's root.
func GrantsOf(c *broker.Conn) Grants { return Grants{c} }

// Bounds of what is kept under a key of grants that allow nothing any more: the last spent ones, because a call that has a
// use of one may ask again, and the last ids of those that are gone, because whoever recorded one may do so again.
const (
	keptSpent = 16
	keptGone  = 256
)

// held are the grants under one key: principal, agent and tool.
type held struct {
	Grants []heldGrant `json:"grants"`
	// Gone are the ids of grants that were forgotten or revoked.
	Gone []string `json:"gone,omitempty"`
}

// remove removes the grants that f names, for good: they are not recorded again.
func (h *held) remove(f func(*heldGrant) bool) {
	h.Grants = slices.DeleteFunc(h.Grants, func(k heldGrant) bool {
		gone := f(&k)
		if gone {
			h.Gone = append(h.Gone, k.ID)
		}
		return gone
	})
	h.Gone = h.Gone[max(len(h.Gone)-keptGone, 0):]
}

// forgetSpent removes all but the last of the grants that are used up or have expired: what is read for every call must not
// grow with how often people were asked.
func (h *held) forgetSpent(now int64) {
	spent := 0
	for i := range h.Grants {
		if h.Grants[i].spent(now) {
			spent++
		}
	}
	h.remove(func(k *heldGrant) bool {
		if !k.spent(now) || spent <= keptSpent {
			return false
		}
		spent--
		return true
	})
}

type heldGrant struct {
	sdk.GrantRecord
	// Used counts the uses, Calls are the calls that have one: the last ones of a grant without a limit.
	Used  int      `json:"used,omitempty"`
	Calls []string `json:"calls,omitempty"`
}

// spent reports whether the grant allows nothing more.
func (k *heldGrant) spent(now int64) bool {
	return k.Uses > 0 && k.Used >= k.Uses || k.expired(now)
}

func (k *heldGrant) expired(now int64) bool { return k.Expires > 0 && k.Expires <= now }

// keyOfGrant is the key-value key: every part is a subject token, which wire.Subjects and tool names guarantee.
func keyOfGrant(principal, agent, tool string) string {
	return principal + "." + wire.NameToken(agent) + "." + tool
}

// Record keeps a grant under its id. Recording it again is harmless.
func (g Grants) Record(ctx context.Context, record sdk.GrantRecord) error {
	return g.change(ctx, keyOfGrant(record.Principal, record.Agent, record.Tool), func(h *held) bool {
		if slices.Contains(h.Gone, record.ID) || slices.ContainsFunc(h.Grants, func(k heldGrant) bool { return k.ID == record.ID }) {
			return false
		}
		h.forgetSpent(g.conn.Now())
		h.Grants = append(h.Grants, heldGrant{GrantRecord: record})
		return true
	})
}

// Reserve takes one use of a grant under a call's id, and returns the grant's id: "" if none covers it that meets the terms. A
// call that has a reservation gets the same again, for as long as the grant lasts and meets the terms.
func (g Grants) Reserve(ctx context.Context, c sdk.PermissionCheck) (grant string, err error) {
	call := c.Call
	err = g.change(ctx, keyOfGrant(c.Initiator, c.Agent, c.Tool), func(h *held) bool {
		grant = ""
		for i := range h.Grants {
			if k := &h.Grants[i]; slices.Contains(k.Calls, call) {
				if !k.expired(g.conn.Now()) && len(c.Terms.Unmet(k.Consent(), c.Initiator)) == 0 {
					grant = k.ID
				}
				return false
			}
		}
		for i := range h.Grants {
			k := &h.Grants[i]
			if k.spent(g.conn.Now()) || len(c.Terms.Unmet(k.Consent(), c.Initiator)) > 0 {
				continue
			}
			k.Used++
			k.Calls = append(k.Calls, call)
			if k.Uses == 0 && len(k.Calls) > keptCalls {
				k.Calls = k.Calls[1:]
			}
			grant = k.ID
			return true
		}
		return false
	})
	return grant, err
}

// Revoke removes a grant by its id, and reports whether it was there. Calls that were made under it stay made.
func (g Grants) Revoke(ctx context.Context, principal, agent, tool, id string) (found bool, err error) {
	err = g.change(ctx, keyOfGrant(principal, agent, tool), func(h *held) bool {
		before := len(h.Grants)
		h.remove(func(k *heldGrant) bool { return k.ID == id })
		found = len(h.Grants) < before
		return found
	})
	return found, err
}

// List returns all grants, by principal, agent and tool.
func (g Grants) List(ctx context.Context) ([]sdk.KeptGrant, error) {
	kv, err := g.bucket(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := kv.Keys(ctx)
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list grants: %w", err)
	}
	slices.Sort(keys)
	var kept []sdk.KeptGrant
	for _, key := range keys {
		h, _, err := read(ctx, kv, key)
		if err != nil {
			return nil, err
		}
		for i := range h.Grants {
			k := &h.Grants[i]
			kept = append(kept, sdk.KeptGrant{GrantRecord: k.GrantRecord, Used: k.Used, Spent: k.spent(g.conn.Now())})
		}
	}
	return kept, nil
}

func (g Grants) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := g.conn.JetStream().KeyValue(ctx, streams.GrantsBucket(g.conn.Subjects()))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, sdk.Errorf(sdk.CodeConfig, "the broker has no bucket of grants; %s", streams.Remedy)
	}
	if err != nil {
		return nil, fmt.Errorf("open the bucket of grants: %w", err)
	}
	return kv, nil
}

// change applies f to what is under key, again whenever somebody else changed it meanwhile. f reports whether it changed
// anything; it may be called several times.
func (g Grants) change(ctx context.Context, key string, f func(*held) bool) error {
	kv, err := g.bucket(ctx)
	if err != nil {
		return err
	}
	for {
		h, revision, err := read(ctx, kv, key)
		if err != nil || !f(&h) {
			return err
		}
		data, err := json.Marshal(h)
		if err != nil {
			return fmt.Errorf("encode grants %s: %w", key, err)
		}
		_, err = kv.Update(ctx, key, data, revision)
		if !errors.Is(err, jetstream.ErrKeyExists) {
			if err != nil {
				return fmt.Errorf("write grants %s: %w", key, err)
			}
			return nil
		}
	}
}

// read returns what is under key, and its revision: 0 when nothing is.
func read(ctx context.Context, kv jetstream.KeyValue, key string) (held, uint64, error) {
	entry, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return held{}, 0, nil
	}
	if err != nil {
		return held{}, 0, fmt.Errorf("read grants %s: %w", key, err)
	}
	var h held
	if err := json.Unmarshal(entry.Value(), &h); err != nil {
		return held{}, 0, fmt.Errorf("decode grants %s: %w", key, err)
	}
	return h, entry.Revision(), nil
}

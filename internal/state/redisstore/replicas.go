package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"agentd/internal/finding"
	"agentd/sdk"
)

// replicated sends a write, and then waits for replicas on the same connection: WAIT covers what its own connection
// wrote.
//
// WAITAOF comes after WAIT, never alone: a replica that gets a write and the question for it at once answers before it has
// synced, and tells what it has synced a second later.
func (s *Store) replicated(ctx context.Context, key string, write func(redis.Pipeliner)) error {
	node, err := s.node(ctx, key)
	if err != nil {
		return err
	}
	var wait *redis.Cmd
	_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		write(p)
		wait = p.Do(ctx, "wait", s.o.Replicas, s.o.ReplicaTimeout.Milliseconds())
		if s.waitAOF {
			wait = p.Do(ctx, "waitaof", 1, s.o.Replicas, s.o.ReplicaTimeout.Milliseconds())
		}
		return nil
	})
	cluster, ok := s.client.(*redis.ClusterClient)
	if ok && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		cluster.ReloadState(ctx) // the client follows redirections of its own requests only
	}
	if err != nil {
		return err
	}
	have, err := s.confirmed(wait)
	if err != nil {
		return err
	}
	if have < s.o.Replicas {
		return fmt.Errorf("%d of %d replicas have confirmed after %s", have, s.o.Replicas, s.o.ReplicaTimeout)
	}
	return nil
}

// confirmed is the number of replicas that have the write, by the answer to WAIT or WAITAOF.
func (s *Store) confirmed(wait *redis.Cmd) (int, error) {
	if !s.waitAOF {
		return wait.Int()
	}
	synced, err := wait.Int64Slice() // the master itself: 0 or 1; replicas
	if err != nil {
		return 0, err
	}
	if len(synced) != 2 || synced[0] == 0 {
		return 0, nil
	}
	return int(synced[1]), nil
}

// node is the server that has the key.
func (s *Store) node(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	}
	return nil, fmt.Errorf("a client of type %T cannot wait for replicas", s.client)
}

// lookUpWaitAOF finds out whether replicas can be asked for what they have synced. A server that writes no append-only file
// refuses WAITAOF.
func (s *Store) lookUpWaitAOF(ctx context.Context, found []finding.Finding) []finding.Finding {
	if s.o.Replicas == 0 || slices.ContainsFunc(found, func(f finding.Finding) bool { return f.Code == FindingNoAOF }) {
		return found
	}
	known, err := s.client.Command(ctx).Result()
	if err != nil {
		return append(found, finding.Warning(FindingUnchecked, fmt.Sprintf("WAITAOF could not be looked up: %v", err),
			"replicas are waited for by WAIT: they may have an entry in memory only").On(unnamed))
	}
	_, s.waitAOF = known["waitaof"]
	return found
}

// following counts the replicas that a server says follow it. One that is still being given all there is does not.
func following(info string) int {
	n := 0
	for line := range strings.Lines(info) {
		if name, about, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "slave") && strings.Contains(about, "state=online") {
			n++
		}
	}
	return n
}

// fewReplicas compares those that follow a server with those that are waited for.
func fewReplicas(server, info string, wanted int) []finding.Finding {
	n := following(info)
	if n >= wanted || strings.Contains(info, "role:slave") { // which is found as such
		return nil
	}
	return []finding.Finding{finding.Error(FindingFewReplicas,
		fmt.Sprintf("%d replicas follow it, and redis.replicas is %d: what is written of runs is not confirmed, and they stand still", n, wanted),
		"start the replicas, or set redis.replicas to how many there are; runs go on by themselves when enough follow").On(server)}
}

// replicasConfirm writes to each master what takes no room that grows, and waits until replicas have it. That they are
// connected does not tell: they may stand still, or lack the append-only file that WAITAOF asks for.
func (s *Store) replicasConfirm(ctx context.Context) error {
	if s.o.Replicas == 0 {
		return nil
	}
	probes := map[string]string{} // a key of each master, by its address
	for p := range partitions {
		key := s.partition(fmt.Sprintf("%03d", p)) + "probe"
		node, err := s.node(ctx, key)
		if err != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "Redis: %v", err)
		}
		if addr := node.Options().Addr; probes[addr] == "" {
			probes[addr] = key
		}
	}
	var faults []error
	for _, addr := range slices.Sorted(maps.Keys(probes)) {
		key := probes[addr]
		if err := s.replicated(ctx, key, func(p redis.Pipeliner) { p.Set(ctx, key, "", 0) }); err != nil {
			how := "see that they are reached, and that the user may call WAIT"
			if s.waitAOF {
				how = "see that they are reached and have appendonly yes and appendfsync always, and that the user may call WAIT and WAITAOF"
			}
			faults = append(faults, sdk.Errorf(sdk.CodeUnavailable, "Redis %s: what is written is not confirmed by its replicas: %v; %s", addr, err, how))
		}
	}
	return errors.Join(faults...)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"agentd/internal/broker"
	"agentd/internal/runner"
	"agentd/internal/worker"
)

// openRedis starts a redis-server that syncs its append-only file at every write. Events still go over JetStream.
func openRedis(ctx context.Context) (*system, error) {
	return open(ctx, agent(), "redis", "Redis appendfsync always; JetStream file, one replica, fsync at every message",
		func(conn *broker.Conn) (runner.Store, func() error, error) {
			url, stop, err := startRedis(ctx)
			if err != nil {
				return nil, nil, err
			}
			store, err := worker.OpenStore(ctx, conn, worker.StoreOptions{RedisURL: url})
			if err != nil {
				return nil, nil, errors.Join(err, stop())
			}
			return store, func() error { return errors.Join(store.Close(), stop()) }, nil
		})
}

func startRedis(ctx context.Context) (url string, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "agentd-bench-redis")
	if err != nil {
		return "", nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address, port := l.Addr().String(), l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, "redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--loglevel", "warning")
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start redis-server (apt-get install redis-server): %w", err)
	}
	stop = func() error {
		killed := cmd.Process.Kill()
		_ = cmd.Wait() // its exit status is that of the kill
		return errors.Join(killed, os.RemoveAll(dir))
	}
	for range 200 {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return "redis://" + address, stop, c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "", nil, errors.Join(fmt.Errorf("redis-server on %s does not answer", address), stop())
}

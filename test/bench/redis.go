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
)

// startRedis starts a redis-server that syncs its append-only file at every write.
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

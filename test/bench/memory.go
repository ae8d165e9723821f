package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// pause is after how long a server has no blocks of messages in memory that were written last.
const pause = 12 * time.Second

// memory prints how much of a server's memory subjects take that have a message each: answers of runs.
func memory(ctx context.Context) (err error) {
	const steps, each = 3, 30_000
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := embedded.Start(embedded.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	conn, err := broker.Connect(ctx, broker.ConnectOptions{InProcess: server, Subjects: wire.DefaultSubjects()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := provision.Apply(ctx, conn, provision.Plan{}); err != nil {
		return err
	}
	const columns = "%10v %14v %16v %18v %11v\n"
	fmt.Printf(columns, "subjects", "live heap MiB", "bytes a subject", "of the system MiB", "messages/s")
	first, body := inUse(), []byte(strings.Repeat("x", 300))
	for step := range steps + 1 {
		rate := 0.0
		if step > 0 {
			began := time.Now()
			if err := fill(conn, step, each, body); err != nil {
				return err
			}
			rate = float64(each) / time.Since(began).Seconds()
			time.Sleep(pause)
		}
		now := inUse()
		subject := 0.0
		if step > 0 {
			subject = float64(now.HeapAlloc-first.HeapAlloc) / float64(step*each)
		}
		kept, err := conn.ZoneState(ctx, streams.In)
		if err != nil {
			return err
		}
		if kept.Subjects != uint64(step*each) {
			return fmt.Errorf("the server has %d subjects, want %d", kept.Subjects, step*each)
		}
		fmt.Printf(columns, step*each, now.HeapAlloc>>20, math.Round(subject), (now.Sys-now.HeapReleased)>>20, math.Round(rate))
	}
	return nil
}

func inUse() runtime.MemStats {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m
}

// inFlight is how many messages are published before their confirmations are waited for.
const inFlight = 1000

// fill publishes as many answers, of as many runs.
func fill(conn *broker.Conn, step, each int, body []byte) error {
	js := conn.JetStream()
	for i := range each {
		run := wire.NewRunKey(fmt.Sprintf("run-%d-%d", step, i))
		call := wire.CallAddress{Domain: "local", Type: "calc_add", Agent: "adder", Run: run, Call: "c1-0-" + run.Token[:26]}
		future, err := js.PublishAsync(conn.Subjects().Reply(call), body)
		if err != nil {
			return err
		}
		if i%inFlight != 0 {
			continue
		}
		select {
		case err := <-future.Err():
			return err
		case <-future.Ok():
		}
	}
	<-js.PublishAsyncComplete()
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/bench"
	"agentd/internal/broker/embedded"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// system is a bench on a server of its own.
type system struct {
	*bench.System
	name string
	// url is the address of the NATS server.
	url   string
	close func() error
}

// openSystem starts a NATS server, and opens what runs need there. redisURL is empty where JetStream is to be the store, and spec is
// the agent.
func openSystem(ctx context.Context, redisURL string, spec sdk.AgentSpec) (*system, error) {
	server, err := bench.StartServer(embedded.Options{Listen: true})
	if err != nil {
		return nil, err
	}
	s := &system{name: "jetstream", url: server.URL()}
	o := bench.Options{Connect: server.Connect(wire.DefaultSubjects()), Spec: spec}
	if o.Store.RedisURL = redisURL; redisURL != "" {
		s.name = "redis"
	}
	s.System, err = bench.Open(ctx, o)
	s.close = func() error { return errors.Join(s.Close(), server.Close()) }
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// report prints what agentd bench prints, of a server of its own.
func report(ctx context.Context, redisURL string, l bench.Load) (err error) {
	server, err := bench.StartServer(embedded.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	o := bench.Options{Connect: server.Connect(wire.DefaultSubjects()), Embedded: server.Dir()}
	o.Store.RedisURL = redisURL
	r, err := bench.Measure(ctx, o, l)
	if err != nil {
		return err
	}
	fmt.Println()
	return r.Write(out)
}

package service

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"agentd/internal/broker"
	"agentd/internal/contracts"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// registering is how long after a service could not be registered that is tried again: each time later, because a broker that
// refuses it logs every attempt.
var registering = retry.Pauses{First: 5 * time.Second, Longest: 5 * time.Minute}

// register publishes the versions of the services' contracts that the registry does not have. It returns when that is done
// or cannot be done now, which keeps no service from serving: the returned function goes on trying. An error of either is
// that the registry has other content for a version.
func register(ctx context.Context, services []*serving) (later func(context.Context) error, err error) {
	open, err := registerAll(ctx, services)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		for pauses := registering.Start(); len(open) > 0 && retry.Sleep(ctx, pauses.Next()) == nil; {
			var err error
			if open, err = registerAll(ctx, open); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// registerAll returns the services that could not be registered now.
func registerAll(ctx context.Context, services []*serving) (open []*serving, err error) {
	for i, s := range services {
		if !s.listed {
			continue
		}
		problem := s.register(ctx)
		switch {
		case problem == nil:
		case errors.Is(problem, &sdk.Error{Code: sdk.CodeConflict}):
			err = errors.Join(err, problem)
		case ctx.Err() == nil:
			open = append(open, s)
			if !s.unlisted {
				s.log.Warn("the service's contract is not in the registry; its calls are answered all the same", "error", problem)
			}
			s.unlisted = true
			// What keeps one out is likely to keep the others out, and each may take seconds to find that out.
			return append(open, services[i+1:]...), err
		}
	}
	return open, err
}

func (s *serving) register(ctx context.Context) error {
	registry := s.conn.Registry()
	for _, version := range contracts.Versions(s.contract) {
		outcome, err := registry.Publish(ctx, s.contract, version)
		switch {
		case err != nil:
			return err
		case outcome == broker.PublicationRemoved:
			s.log.Warn("a version of the contract was removed from the registry and stays so; agents that refer to it cannot use it",
				"version", version, "remedy", "agentd contracts push FILE")
		case outcome == broker.PublicationNew:
			s.log.Info("contract is registered", "version", version)
		}
	}
	return nil
}

// offer shows the services in `nats micro ls`.
func offer(conn *broker.Conn, services []*serving) (stop func() error, err error) {
	var offered []broker.Service
	for _, s := range services {
		one, err := conn.ContractService(s.contract)
		if err != nil {
			return nil, err
		}
		var domains []string
		for _, d := range s.domains {
			domains = append(domains, cmp.Or(d, wire.LocalDomain))
		}
		one.Metadata["domain"] = strings.Join(domains, " ")
		one.Stats = func() any {
			return map[string]uint64{"calls": s.calls.Load(), "errors": s.errors.Load()}
		}
		offered = append(offered, one)
	}
	return conn.Serve(offered...)
}

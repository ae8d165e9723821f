package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"agentd/internal/contracts"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Service is what others find with the NATS service API (`nats micro ls`, `nats micro info`). Programs that offer a service
// of the same name share its requests.
type Service struct {
	// Name has letters, digits, "_" and "-" only, as subject tokens do; Version is a semantic version.
	Name, Version, Description string
	Metadata                   map[string]string
	Endpoints                  []Endpoint
	// Stats, unless nil, stands as "data" in the statistics (`nats micro stats`).
	Stats func() any
}

// Endpoint answers requests on a subject, or on all that match it. An error is sent as the NATS service API's.
type Endpoint struct {
	Subject, Name string
	Metadata      map[string]string
	Answer        func(subject string, request []byte) (Answer, error)
}

// Answer sends the answer to a request.
type Answer func(micro.Request) error

// JSON is a value as an answer.
func JSON(value any) (Answer, error) {
	data, err := json.Marshal(value)
	return func(r micro.Request) error { return r.Respond(data) }, err
}

// offering bounds how long Serve waits until the server knows what is offered. Where the connection is away it learns it when that is back.
const offering = 5 * time.Second

// Serve offers services until stop is called. When it returns, requests find them.
func (c *Conn) Serve(services ...Service) (stop func() error, err error) {
	var offered []micro.Service
	stop = func() error {
		var faults []error
		for _, s := range offered {
			faults = append(faults, s.Stop())
		}
		return errors.Join(faults...)
	}
	for _, s := range services {
		config := micro.Config{Name: s.Name, Version: s.Version, Description: s.Description, Metadata: s.Metadata}
		if s.Stats != nil {
			config.StatsHandler = func(*micro.Endpoint) any { return s.Stats() }
		}
		service, err := micro.AddService(c.nc, config)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("offer service %s: %w", s.Name, err), stop())
		}
		offered = append(offered, service)
		for _, e := range s.Endpoints {
			err := service.AddEndpoint(e.Name, micro.HandlerFunc(func(r micro.Request) { c.answer(e, r) }),
				micro.WithEndpointSubject(e.Subject), micro.WithEndpointMetadata(e.Metadata))
			if err != nil {
				return nil, errors.Join(fmt.Errorf("offer %s: %w", e.Subject, err), stop())
			}
		}
	}
	if err := c.nc.FlushTimeout(offering); err != nil {
		c.log.Warn("the server may not know yet what is offered", "error", err)
	}
	return stop, nil
}

// maxShownSchemas bounds the schemas in an endpoint's metadata, in bytes: they go to everybody who asks what there is. The
// endpoint itself answers with all of them.
const maxShownSchemas = 8 << 10

// ContractService describes who answers the calls of a contract: what there is to know of it as metadata, and an endpoint
// that answers with the contract. Its version is the contract's newest.
func (c *Conn) ContractService(contract sdk.Contract) (Service, error) {
	newest, err := contracts.Resolve(contract, contracts.Latest)
	if err != nil {
		return Service{}, err
	}
	v := contract.Versions[newest]
	accepts, err := schema.Compile(v.Accepts)
	if err != nil {
		return Service{}, err
	}
	emits, err := json.Marshal(v.Emits)
	if err != nil {
		return Service{}, fmt.Errorf("encode the answers of contract %s: %w", contract.URI, err)
	}
	endpoint := Endpoint{
		Subject: c.subjects.Contract(contract.Type), Name: "contract",
		Answer: func(string, []byte) (Answer, error) { return JSON(contract) },
	}
	if len(v.Accepts)+len(emits) <= maxShownSchemas {
		endpoint.Metadata = map[string]string{"accepts": string(v.Accepts), "emits": string(emits)}
	}
	return Service{
		Name: wire.NameToken(contract.Type), Version: newest, Description: contract.Description,
		Metadata: map[string]string{
			"uri": contract.URI, "type": contract.Type, "domain": cmp.Or(contract.Domain, wire.LocalDomain),
			"versions": strings.Join(contracts.Versions(contract), " "), "dialect": accepts.Dialect(),
		},
		Endpoints: []Endpoint{endpoint},
	}, nil
}

func (c *Conn) answer(e Endpoint, r micro.Request) {
	answer, err := e.Answer(r.Subject(), r.Data())
	if err == nil {
		err = answer(r)
	} else {
		problem := sdk.AsError(err)
		if problem.Cause != nil {
			c.log.Error("request could not be answered", "subject", e.Subject, "error", err)
		}
		err = r.Error(string(problem.Code), problem.Message, nil)
	}
	if err != nil {
		c.log.Warn("answer could not be sent", "subject", e.Subject, "error", err)
	}
}

// Programs tell their statistics within statisticsWithin of the request, or of the answer before theirs.
const statisticsWithin = 300 * time.Millisecond

// Statistics are what the programs that offer a service tell of themselves (Service.Stats), by the programs' ids.
func (c *Conn) Statistics(ctx context.Context, service string) (map[string]json.RawMessage, error) {
	answers, err := c.nc.SubscribeSync(c.nc.NewInbox())
	if err != nil {
		return nil, fmt.Errorf("listen for statistics: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }() // the connection is gone
	if err := c.nc.PublishRequest("$SRV.STATS."+service, answers.Subject, nil); err != nil {
		return nil, fmt.Errorf("ask for statistics: %w", err)
	}
	told := map[string]json.RawMessage{}
	for {
		waiting, cancel := context.WithTimeout(ctx, statisticsWithin)
		m, err := answers.NextMsgWithContext(waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for statistics: %w", context.Cause(ctx))
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
			return told, nil
		case err != nil:
			return nil, fmt.Errorf("wait for statistics: %w", err)
		}
		var stats struct {
			ID        string `json:"id"`
			Endpoints []struct {
				Data json.RawMessage `json:"data"`
			} `json:"endpoints"`
		}
		if json.Unmarshal(m.Data, &stats) == nil && len(stats.Endpoints) > 0 { // else somebody else answers there
			told[stats.ID] = stats.Endpoints[0].Data
		}
	}
}

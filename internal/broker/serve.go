package broker

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/micro"

	"agentd/sdk"
)

// Endpoint answers requests on a subject. Answer's result is sent as JSON; an error as the NATS service API's.
type Endpoint struct {
	Subject, Name string
	Answer        func(request []byte) (any, error)
}

// serviceVersion is the version of agentd's query protocol, as `nats micro ls` shows it.
const serviceVersion = "1.0.0"

// Serve answers requests, shared among all connections that serve the same endpoints, until stop is called.
func (c *Conn) Serve(endpoints []Endpoint) (stop func() error, err error) {
	service, err := micro.AddService(c.nc, micro.Config{
		Name: c.subjects.Root(), Version: serviceVersion, Description: "agentd workers: queries about runs",
	})
	if err != nil {
		return nil, fmt.Errorf("offer the query service: %w", err)
	}
	for _, e := range endpoints {
		err := service.AddEndpoint(e.Name, micro.HandlerFunc(func(r micro.Request) { c.answer(e, r) }),
			micro.WithEndpointSubject(e.Subject))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("offer %s: %w", e.Subject, err), service.Stop())
		}
	}
	return service.Stop, nil
}

func (c *Conn) answer(e Endpoint, r micro.Request) {
	answer, err := e.Answer(r.Data())
	var data []byte
	if err == nil {
		data, err = json.Marshal(answer)
	}
	if err == nil {
		err = r.Respond(data)
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

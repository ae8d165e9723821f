package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentd/internal/contracts"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Defaults of a service.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultConcurrency = 16
)

// Service answers the calls of one contract. It is made before it is run and not changed afterwards.
type Service struct {
	contract sdk.Contract
	versions map[string]*contracts.Version
	domains  []string
	timeout  time.Duration
	slots    int
	units    sdk.Units
	// listed says that the contract is published in the registry.
	listed   bool
	handlers []registration
}

// registration is one Handle.
type registration struct {
	// versions are those that it was given; none is all that no other registration has.
	versions []string
	// chooses is set when the handler names the type of its answer.
	chooses bool
	// missing is set when it was given nil.
	missing bool
	handle  handler
}

// handler takes data that is valid by the contract.
type handler func(ctx context.Context, call Call, data json.RawMessage) (Answer, error)

// Option changes a service.
type Option func(*Service)

// Timeout is how long a handler may take for a call that does not say when it is due. The default is DefaultTimeout.
func Timeout(d time.Duration) Option { return func(s *Service) { s.timeout = d } }

// Concurrency is how many calls are handled at once. The default is DefaultConcurrency.
func Concurrency(n int) Option { return func(s *Service) { s.slots = n } }

// Domains are the routing lanes whose calls are answered, "" the local one. The default is the contract's domain.
func Domains(domains ...string) Option { return func(s *Service) { s.domains = domains } }

// Units is what an answer costs, errors included, unless the handler says otherwise (Answer). The default is 0.
func Units(u sdk.Units) Option { return func(s *Service) { s.units = u } }

// Unlisted keeps the contract out of the registry, where agents find it by its type or URI. Else Run publishes it there: a version that the
// registry has with other content keeps the service from running; a registry that does not exist, or may not be written, does not.
func Unlisted() Option { return func(s *Service) { s.listed = false } }

// New returns a service of the contract. The error is *sdk.Error with CodeConfig and lists everything that is wrong.
func New(contract sdk.Contract, options ...Option) (*Service, error) {
	s := &Service{
		contract: contract, versions: map[string]*contracts.Version{}, domains: []string{contract.Domain},
		timeout: DefaultTimeout, slots: DefaultConcurrency, listed: true,
	}
	var faults []sdk.Fault
	for i, o := range options {
		if o == nil {
			faults = append(faults, sdk.Fault{Path: fmt.Sprintf("options[%d]", i), Expected: "an option", Got: "nil"})
			continue
		}
		o(s)
	}
	if faults = slices.Concat(faults, s.compile(), s.check()); len(faults) > 0 {
		return nil, &sdk.Error{
			Code: sdk.CodeConfig, Message: "service of contract " + contract.URI + " cannot be made", Faults: faults,
		}
	}
	return s, nil
}

// FromFile is New with the contract in a file, YAML or JSON.
func FromFile(path string, options ...Option) (*Service, error) {
	contract, err := contracts.Load(path)
	if err != nil {
		return nil, fmt.Errorf("load contract %s: %w", path, err)
	}
	return New(contract, options...)
}

// Parse is FromFile for a file that is already read, such as an embedded one. Its name tells the format (JSON when it ends
// in .json) and stands in errors.
func Parse(name string, data []byte, options ...Option) (*Service, error) {
	contract, err := contracts.Parse(name, data)
	if err != nil {
		return nil, fmt.Errorf("read contract %s: %w", name, err)
	}
	return New(contract, options...)
}

// Contract is what the service was made from.
func (s *Service) Contract() sdk.Contract { return s.contract }

// Handle has h answer the calls of s. Without versions it answers those of every version of the contract that no other
// handler is given. Which versions have no handler, or two, is found by Run. Without a service, as New returns none with an error, it panics.
//
// h may be called concurrently, and in goroutines that it was called in before: what it does to its goroutine is to be undone. in is the call's data, valid by the contract and with its defaults, decoded like
// encoding/json does but with names matched exactly. The returned value is encoded like encoding/json does, but nil
// slices and maps as empty ones, and checked against the contract. Out is Answer when the handler chooses among several
// types of answers.
//
// ctx ends when the call is due, when nobody waits for it any more, and when a stopping program is out of patience. Of an
// error the caller sees the *sdk.Error in its chain: code, message, whether to retry, faults. Any other is logged, and the
// caller only learns that there was an internal error. A panic is an error of that kind.
func Handle[In, Out any](s *Service, h func(ctx context.Context, call Call, in In) (Out, error), versions ...string) {
	if s == nil {
		panic("service: a handler of no service: the error of New tells why there is none")
	}
	var none Out
	_, chooses := any(none).(Answer)
	s.handlers = append(s.handlers, registration{
		versions: versions, chooses: chooses, missing: h == nil,
		handle: func(ctx context.Context, call Call, data json.RawMessage) (Answer, error) {
			var in In
			if err := decode(data, &in); err != nil {
				return Answer{}, fmt.Errorf("decode the data of a call into %T: %w", in, err)
			}
			out, err := h(ctx, call, in)
			if e, ok := err.(*sdk.Error); ok && e == nil { //nolint:errorlint // what wraps one is an error
				err = nil // a *sdk.Error that is nil, returned as an error
			}
			if err != nil {
				return Answer{}, err
			}
			if answer, ok := any(out).(Answer); ok {
				return answer, nil
			}
			return Answer{Data: out}, nil
		},
	})
}

// compile compiles all schemas of the contract and returns what is wrong with it.
func (s *Service) compile() []sdk.Fault {
	var faults []sdk.Fault
	fault := func(path, expected, got string) {
		faults = append(faults, sdk.Fault{Path: path, Expected: expected, Got: got})
	}
	c := &s.contract
	if c.URI == "" {
		fault("$.uri", "a URI", "nothing")
	}
	if err := wire.CheckName(c.Type); err != nil {
		fault("$.type", "a name", fmt.Sprintf("%q", c.Type))
	}
	if len(c.Versions) == 0 {
		fault("$.versions", "at least one", "none")
	}
	for _, version := range sorted(c.Versions) {
		path := fmt.Sprintf("$.versions[%q]", version)
		if _, _, ok := contracts.ParseSchemaRef(sdk.SchemaRef(c.URI, version)); c.URI != "" && !ok || version == contracts.Wildcard {
			fault(path, "a semantic version above "+contracts.Wildcard, version)
		}
		emits := c.Versions[version].Emits
		if len(emits) == 0 {
			fault(path+".emits", "at least one answer", "none")
		}
		for _, emitted := range sorted(emits) {
			if wire.CheckName(emitted) != nil || emitted == wire.ErrorType(c.Type) {
				fault(path+".emits", "names of answers other than the system error", emitted)
			}
		}
		compiled, err := contracts.CompileVersion(*c, version)
		if err != nil {
			faults = append(faults, sdk.AsError(err).Faults...)
		}
		s.versions[version] = compiled
	}
	return faults
}

// check returns what is wrong with the options.
func (s *Service) check() []sdk.Fault {
	var faults []sdk.Fault
	fault := func(path, expected string, got any) {
		faults = append(faults, sdk.Fault{Path: path, Expected: expected, Got: fmt.Sprint(got)})
	}
	if s.timeout <= 0 {
		fault("timeout", "more than 0", s.timeout)
	}
	if s.slots < 1 {
		fault("concurrency", "at least 1", s.slots)
	}
	if s.units < 0 {
		fault("units", "0 or more", s.units)
	}
	if len(s.domains) == 0 {
		fault("domains", "at least one", "none")
	}
	for _, d := range s.domains {
		if err := wire.CheckDomain(d); err != nil {
			fault("domains", sdk.AsError(err).Message, d)
		}
	}
	return faults
}

// bind returns the handler of every version, and which versions lack one or have too many.
func (s *Service) bind() (map[string]handler, []sdk.Fault) {
	var faults []sdk.Fault
	fault := func(version, expected, got string) {
		faults = append(faults, sdk.Fault{Path: s.contract.Type + " " + version, Expected: expected, Got: got})
	}
	bound := map[string]handler{}
	bind := func(version string, r registration) {
		switch {
		case r.missing:
			fault(version, "a handler", "nil")
		case bound[version] != nil:
			fault(version, "one handler", "another")
		case len(s.versions[version].Emits) > 1 && !r.chooses:
			fault(version, "a handler that returns service.Answer, because there are several: "+
				strings.Join(sorted(s.versions[version].Emits), ", "), "one that does not choose")
		}
		bound[version] = r.handle
	}
	for _, r := range s.handlers {
		for _, version := range r.versions {
			if s.versions[version] == nil {
				fault(version, "a version of the contract: "+strings.Join(sorted(s.versions), ", "), "a handler for another")
				continue
			}
			bind(version, r)
		}
	}
	given := maps.Clone(bound)
	for _, r := range s.handlers {
		for _, version := range sorted(s.versions) {
			if len(r.versions) == 0 && given[version] == nil {
				bind(version, r)
			}
		}
	}
	for _, version := range sorted(s.versions) {
		if bound[version] == nil {
			fault(version, "a handler", "none")
		}
	}
	return bound, faults
}

// only is the one type of answers of a version, or "".
func only(v *contracts.Version) string {
	if len(v.Emits) != 1 {
		return ""
	}
	answer := ""
	for emitted := range v.Emits {
		answer = emitted
	}
	return answer
}

func sorted[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), cmp.Compare[string])
}

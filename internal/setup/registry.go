package setup

import (
	"context"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/contractlint"
	"agentd/internal/contracts"
	"agentd/sdk"
)

// LookUp puts what the registry has in the place of the configuration's references, and says which it does not have.
func LookUp(ctx context.Context, r broker.Registry, cfg *config.Config) (missing config.Faults, err error) {
	state, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	for _, ref := range cfg.References {
		if _, err := state.Resolve(ref.Contract, ref.Range); err != nil {
			missing = append(missing, config.Fault{Position: ref.Position, Message: sdk.AsError(err).Message})
		}
	}
	for i, spec := range cfg.Agents {
		if bound, err := contracts.Bind(spec, state); err == nil { // else it is among the missing
			cfg.Agents[i] = bound
		}
	}
	return missing, nil
}

// Changed are the contracts of the configuration with other content than the registry has for their versions: services that
// registered answer the other one.
func Changed(ctx context.Context, r broker.Registry, cfg *config.Config) (config.Faults, error) {
	state, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	var changed config.Faults
	for _, own := range OwnContracts(cfg) {
		if err := contractlint.Conflicts(state, own); err != nil {
			changed = append(changed, config.Fault{Position: cfg.Source(own.Type), Message: err.Error()})
		}
	}
	return changed, nil
}

// MissingContracts is the error of who cannot go on without them.
func MissingContracts(missing config.Faults) error {
	e := sdk.Errorf(sdk.CodeContractMissing,
		"the registry does not have what agents refer to; start the services that publish it, or run: agentd contracts push FILE")
	for _, f := range missing {
		e.Message += "\n  " + f.String()
	}
	return e
}

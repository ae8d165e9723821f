package approvals

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// callsFlag lets a command name calls of a request that asks for several.
func callsFlag(cmd *cobra.Command, calls *[]string) {
	cmd.Flags().StringSliceVar(calls, "call", nil, "the calls that it is about, as show lists them, where the request is for several (default: all)")
	cli.Narrow(cmd.Flags(), "call")
}

// onCalls is the decision on those calls of a request; none are all of a request for several.
func onCalls(r *sdk.PermissionRequest, p sdk.PermissionDecision, names []string) (sdk.PermissionDecision, error) {
	switch {
	case len(r.Calls) == 0 && len(names) > 0:
		return p, cli.Usagef("--call: the request is for one call; leave it out")
	case len(r.Calls) == 0:
		return p, nil
	case len(names) == 0 && len(p.Args)+len(p.Result) > 0:
		return p, cli.Usagef("the request is for several calls; name one with --call: %s", strings.Join(places(r), ", "))
	case len(names) == 0:
		p.All = true
		return p, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(r.Calls, func(c sdk.PermissionCall) bool { return c.Call == name || wire.CallPlace(c.Call) == name })
		if i < 0 {
			return p, cli.Usagef("--call %s: the request is for %s", name, strings.Join(places(r), ", "))
		}
		p.Calls = append(p.Calls, sdk.CallDecision{
			Call: r.Calls[i].Call, ArgsHash: r.Calls[i].ArgsHash, Args: p.Args, Result: p.Result,
		})
	}
	p.Args, p.Result, p.ArgsHash = nil, nil, ""
	return p, nil
}

// places name the calls of a request as show lists them.
func places(r *sdk.PermissionRequest) []string {
	names := make([]string, len(r.Calls))
	for i := range r.Calls {
		names[i] = wire.CallPlace(r.Calls[i].Call)
	}
	return names
}

// namedCalls are the calls of a request that a decision is on, with the arguments that it gives them.
func namedCalls(r *sdk.PermissionRequest, p sdk.PermissionDecision) []sdk.PermissionCall {
	if p.All {
		return r.Calls
	}
	var named []sdk.PermissionCall
	for _, c := range p.Calls {
		one, _ := r.Of(c.Call) // onCalls took it from there
		if len(c.Args) > 0 {
			one.Args = c.Args
		}
		named = append(named, one.Each()...)
	}
	return named
}

// Package policies plays random cases: agents under random policies and hooks, models that call tools with random arguments, and people
// who decide at random, edit and grant, while policies are changed and workers replaced. The catalog, the runner, the handler and the core
// are the real ones; the broker, the clock, the services and the people are the case's own. Calls are made of services, tools in Go,
// toolsets as MCP servers have them and other agents, natively and in text.
//
// Each call that is made is shown, at that moment, to a second evaluator of policies, which shares no code with the first: evaluator.go.
// -policies.seed replays a case.
package policies

// Package approval is agentd's permission manager (docs/approvals.md): the policy of an agent as data, the stricter of two policies,
// and grants wider than a run. Everything fails closed.
//
// What a run itself keeps and decides (requests, decisions, grants of a run) is in internal/core.
package approval

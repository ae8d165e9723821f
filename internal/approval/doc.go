// Package approval is agentd's permission manager (design §7): the policy of an agent as data, the stricter of two policies,
// grants wider than a run, and the keys that decisions are signed with. Everything fails closed.
//
// What a run itself keeps and decides (requests, decisions, grants of a run) is in internal/core.
package approval

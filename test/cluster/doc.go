// Package cluster is a cluster of NATS servers, each a process of its own, that are killed, stopped, cut off from each other and
// started again, and what agentd promises on it.
package cluster

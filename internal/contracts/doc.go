// Package contracts is where agents and services meet: contract files, their versions, the registry of what is published,
// and the contracts of agentd itself.
//
// Nothing here connects to anything. Everything may be used concurrently.
package contracts
